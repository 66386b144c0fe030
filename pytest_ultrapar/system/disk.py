"""What keeps a run's records on the disk, taken when this is imported: a test may fake it later."""

from __future__ import annotations

import os


class Disk:
    """Functions of `os`; in a class, where pyfakefs looks for none that it could replace."""

    close, fdatasync, fstat, mkdir = os.close, os.fdatasync, os.fstat, os.mkdir
    open_fd, pread, replace, stat, write = os.open, os.pread, os.replace, os.stat, os.write
