"""The broker alone manages all limits: it decides when, and on which lane, a request is sent.

Start reading at `scheduler.py`, which matches waiting requests with free lanes. `limits.py`,
`lanes.py`, `waiting.py` and `groups.py` define the state of a run, and `lane_table.py` changes it.
`throttles.py` enforces a limit, and `health.py` decides when a lane pauses. `budget.py` counts the
money spent, which `spending_file.py` stores. `day_ledger.py` counts requests and tokens per day.
`broker.py` combines all of these in a pure state machine. `event_loop.py` runs this state machine
on an event loop: in this process (`local.py`), in a separate process (`server.py`, `client.py`), or
in virtual time (`virtual_time.py`). `shares.py` and `demand.py` are for limits that hosts share.
"""
