"""The functions of `os` that write a run's records, kept at import: a test may fake `os` later."""

from __future__ import annotations

import os


class Disk:
    """The functions of `os`, in a class because pyfakefs does not replace functions in classes."""

    close, fdatasync, fstat, mkdir = os.close, os.fdatasync, os.fstat, os.mkdir
    open_fd, pread, replace, stat, write = os.open, os.pread, os.replace, os.stat, os.write
