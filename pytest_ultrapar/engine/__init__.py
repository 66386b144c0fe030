"""Run episodes on an event loop in a separate thread, and send all their requests.

`engine.py` runs episodes (`episode.py`). `llm.py` is the client of an episode. `sender.py` is the
only place that takes a lease, sends a request and tries again (`retry.py`). `http.py` makes the
connection. Requests of SDKs come through `sdk_sender.py`, requests of other processes through
`gateway.py`. A replay looks for stored answers first (`replay.py`).
"""
