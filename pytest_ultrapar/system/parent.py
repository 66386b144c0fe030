"""Code for the children of `system/child.py`: talk to the parent, and end when the parent ends.

The kernel closes the pipe however the parent ends, even after SIGKILL. The child also checks its
parent's id: a process that the parent forked (for example with `multiprocessing`) may outlive the
parent and keep the pipe open. This module imports almost nothing, because a run waits until its
children have started.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import UltraparError

if TYPE_CHECKING:
    from collections.abc import Callable

PARENT_PID = "ULTRAPAR_PARENT_PID"
"""The environment variable in which the parent puts its process id. If the parent died before the
first check, the child's actual parent has another id."""
_LOOK_EVERY_S = 0.5


def tell_parent(line: bytes) -> None:
    """Print one line immediately, if the parent can still read it."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), line)


def answer_parent(answer: Callable[[], bytes]) -> int:
    """Print the answer or the error, which the parent's `run_child` reads; return the exit code."""
    try:
        said = answer()
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(said)
    return 0


async def parent_gone() -> None:
    """Return at the end of the standard input, at SIGTERM, or when this process has a new parent.

    Call this function on the event loop on which the process serves.
    """
    import asyncio  # noqa: PLC0415 - only processes that serve need it
    import signal  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    stdin = sys.stdin.fileno()

    def read() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            gone.set()

    loop.add_reader(stdin, read)
    loop.add_signal_handler(signal.SIGTERM, gone.set)
    while _has_parent():
        try:
            await asyncio.wait_for(gone.wait(), _LOOK_EVERY_S)
        except TimeoutError:
            continue
        return


def line_from_parent(within_s: float) -> bytes | None:
    """Return the next line from the standard input, without its end.

    Args:
        within_s: How long to wait for the line, in seconds.

    Returns:
        The line; empty if the parent has ended, None if the parent wrote nothing in that time.
    """
    if not _has_parent():
        return b""
    if not select.select([sys.stdin], [], [], within_s)[0]:
        return None
    return b"".join(iter(_next_byte, b"\n"))


def _next_byte() -> bytes:
    # A buffer would read the next line, too, and `select` would not report it. The end of the input
    # also ends a line.
    return os.read(sys.stdin.fileno(), 1) or b"\n"


def _has_parent() -> bool:
    """Whether the parent is alive; always true if a person started this process."""
    return os.environ.get(PARENT_PID) in {None, str(os.getppid())}
