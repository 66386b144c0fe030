"""A provider in code: a real HTTP server with limits, latencies and simulated models.

`app.py` answers a request. `limits.py` decides whether to refuse it, a persona (`persona.py`)
writes the answer, `faults/` adds scripted failures, and `wire/` reads and writes the format of each
API. `process.py` starts the server as a process. `log.py` records the requests, so that tests can
check limits against the log.
"""
