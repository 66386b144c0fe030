"""Run episodes on an event loop in a separate thread, and send all their requests.

`engine.py` runs episodes (`episode.py`). `llm.py` is the client of an episode. Only `sender.py`
takes leases, sends requests and retries them (`retry.py`). `http.py` makes the connections.
Requests from SDKs come through `sdk_sender.py`, and requests from other processes through
`gateway.py`. In a replay, `replay.py` first looks for stored answers.
"""
