"""A run from its start to its end, in its coordinating process.

`coordinator.py` contains the order of events, `run.py` the run itself. `xdist_session.py` is that
process under xdist; `local_session.py` without xdist, where it also runs the cases. `dispatch.py`
(pure) decides which worker gets a case, `crashes.py` about the cases of a dead worker.
`services.py` starts broker, simulator and compactor; `finish.py` ends the run. `keys/` locks API
keys on this machine before a run sends, `daily_limits_left.py` checks what is left of the day.
`check/` sends one request to each lane; `gateway/` is a run whose cases are requests of other
programs.
"""
