"""Who may send what, where and when: the broker, the only owner of all limits.

Begin with `scheduler.py`, which brings waiting requests and free lanes together. `limits.py`,
`lanes.py`, `waiting.py` and `groups.py` hold the state of a run, `lane_table.py` what changes it;
`throttles.py` keeps a limit, and `health.py` says when a lane pauses. `budget.py` and
`day_ledger.py` count what is spent and not given back; `spending_file.py` remembers it. `broker.py`
joins them as a pure state machine. `host.py` puts it on an event loop: in this process
(`local.py`), in one of its own (`server.py`, `client.py`), or in virtual time (`play.py`).
`shares.py` and `demand.py` are for limits that hosts share.
"""
