"""Episodes on an event loop in a thread of their own, and all requests they send.

`engine.py` runs episodes (`episode.py`), `llm.py` is the client they talk to, and `sender.py` the
one place that takes a lease, sends, and tries again (`retry.py`). `http.py` is the connection.
What SDKs write comes by `native.py`, from other processes by `gateway.py`. A replay looks for
stored answers first (`replay.py`).
"""
