"""Processes, files and time of the operating system.

`child.py` starts a module of this package as a process that ends with its parent; `parent.py` is
that module's half. `files.py` publishes a file whole or not at all. `clock.py` reads time.
"""
