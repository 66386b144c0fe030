"""The child's half of `system/child.py`: read from the parent, write to it, and end with it.

The kernel closes the pipe however the parent ends, even after SIGKILL. The child also checks its
parent's id: a process that the parent forked (for example by `multiprocessing`) may outlive the
parent and hold the pipe open. This module imports almost nothing, because a run waits until its
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
"""Set by the parent: if the parent died before the first check, the child has another parent id."""
_LOOK_EVERY_S = 0.5


def tell_parent(line: bytes) -> None:
    """Print one line immediately, if the parent can still read it."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), line)


def answer_parent(answer: Callable[[], bytes]) -> int:
    """Print the answer, or the error; return the exit code. For modules that `run_child` runs."""
    try:
        said = answer()
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(said)
    return 0


async def parent_gone() -> None:
    """Return when the standard input ends, at SIGTERM, or when this process has another parent.

    Called on the loop on which the process serves.
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
    """The next line of the standard input, without its end.

    Args:
        within_s: How long to wait for it, seconds.

    Returns:
        The line; empty if the parent has ended, None if it wrote nothing in that time.
    """
    if not _has_parent():
        return b""
    if not select.select([sys.stdin], [], [], within_s)[0]:
        return None
    return b"".join(iter(_next_byte, b"\n"))


def _next_byte() -> bytes:
    # A buffer would also read the next line, and `select` would not know. The end of the input
    # ends the line, too.
    return os.read(sys.stdin.fileno(), 1) or b"\n"


def _has_parent() -> bool:
    """Whether the parent is alive; also true for a process that a person started."""
    return os.environ.get(PARENT_PID) in {None, str(os.getppid())}
