"""The simulated provider: a real HTTP server with limits, latencies and simulated models.

`app.py` answers a request. `limits.py` decides whether to refuse it, a persona (`persona.py`)
writes the answer, `faults/` adds scripted failures, and `wire/` reads and writes the format of each
API. `process.py` starts the server in its own process. `log.py` records all requests, so that tests
can check limits against the log.
"""
