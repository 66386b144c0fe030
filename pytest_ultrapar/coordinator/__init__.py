"""A run from its start to its end, in the process that holds it together.

`coordinator.py` says what happens when; `run.py` is the run. `controller.py` is that process
under xdist, `local.py` without: there it also runs the cases. `dispatch.py` (pure) decides who gets
a case, `crashes.py` what becomes of those of a dead worker. `services.py` starts broker, simulator
and compactor; `finish.py` ends the run. `claims/` holds what a run takes
on this host before it sends: keys, and units of the day. `check/` asks each lane once; `gateway/`
is a run whose cases are other programs' requests.
"""
