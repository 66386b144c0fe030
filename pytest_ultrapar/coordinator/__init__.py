"""Manage a run from start to end, in the run's coordinating process.

`coordinator.py` calls the steps of a run one after another, and `run.py` is the run itself.
`xdist_session.py` is the part of the coordinating process that works with xdist. Without xdist,
`local_session.py` takes its place and also runs the cases. `dispatch.py` (without I/O) decides
which worker gets a case, and `crashes.py` decides what happens to the cases of a dead worker.
`services.py` starts the broker, the simulator and the compactor, and `finish.py` ends the run.
Before a run sends requests, `keys/` reserves API keys and daily units on this machine. `check/`
sends one request to each lane, if the user wants this. `gateway/` contains a kind of run whose
cases are requests from other programs.
"""
