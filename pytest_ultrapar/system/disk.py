"""Functions of `os` that write a run's records, bound at import: a test may fake them later."""

from __future__ import annotations

import os


class Disk:
    """Functions of `os`. pyfakefs does not replace functions that are in a class."""

    close, fdatasync, fstat, mkdir = os.close, os.fdatasync, os.fstat, os.mkdir
    open_fd, pread, replace, stat, write = os.open, os.pread, os.replace, os.stat, os.write
