"""A provider made of code: limits, latencies and models that act, behind a real HTTP server.

`app.py` answers a request: `limits.py` says whether it is refused, a persona (`persona.py`) what
the answer says, `faults/` what goes wrong by script. `wire/` reads and writes each API's format.
`process.py` starts it as a process, `log.py` writes down what came: by that tests judge limits.
"""
