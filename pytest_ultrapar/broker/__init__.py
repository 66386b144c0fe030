"""The broker is the only owner of all limits: it decides which request is sent when and where.

Begin with `scheduler.py`, which brings waiting requests and free lanes together. `limits.py`,
`lanes.py`, `waiting.py` and `groups.py` hold the state of a run, and `lane_table.py` changes it.
`throttles.py` keeps a limit, and `health.py` decides when a lane pauses. `budget.py` and
`day_ledger.py` count spending that is not given back, and `spending_file.py` stores it. `broker.py`
joins them as a pure state machine. `event_loop.py` puts it on an event loop: in this process
(`local.py`), in a separate one (`server.py`, `client.py`), or in virtual time (`virtual_time.py`).
`shares.py` and `demand.py` are for limits that hosts share.
"""
