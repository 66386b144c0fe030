"""Processes, files and time, as the operating system has them.

`child.py` starts a module of ours as a process that ends with its parent; `parent.py` is that
module's half. `files.py` puts a file in its place whole or not at all. `clock.py` reads time.
"""
