"""A process and its children, any of which may end between two reads."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from signal import Signals


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    itself = psutil.Process(pid)
    return [itself, *itself.children(recursive=True)]


def named(family: Iterable[psutil.Process], words: str) -> list[psutil.Process]:
    """The processes whose command lines contain these words; an ended one has no command line."""
    found = []
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if words in " ".join(one.cmdline()):
                found.append(one)
    return found


def workers_of(pid: int) -> list[psutil.Process]:
    """The xdist workers of a controller."""
    return named(family_of(pid), "sys.stdin.readline")


def signal_all(family: Iterable[psutil.Process], number: Signals) -> None:
    """Send a signal to each process that still exists."""
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)
