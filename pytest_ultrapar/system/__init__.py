"""Access to the operating system: processes, files and time.

`child.py` starts a module of this package as a process that ends with its parent; `parent.py` is
the code for that process. `files.py` publishes a file either whole or not at all. `clock.py` reads
the clocks.
"""
