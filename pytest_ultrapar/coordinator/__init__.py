"""A run from its start to its end, in its coordinating process.

`coordinator.py` puts the events in order, and `run.py` is the run itself. The coordinating process
is `xdist_session.py` under xdist. Without xdist it is `local_session.py`, which also runs the
cases. `dispatch.py` (pure) decides which worker gets a case, and `crashes.py` decides what happens
to the cases of a dead worker. `services.py` starts the broker, the simulator and the compactor, and
`finish.py` ends the run. Before a run sends requests, `keys/` reserves API keys and daily units
on this machine. `check/` sends one request to each lane. `gateway/` is a run whose cases are
requests from other programs.
"""
