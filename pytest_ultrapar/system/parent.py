"""What a process of `system/child.py` hears from whoever started it, says to them, and ends with.

The kernel closes the pipe however the parent ends, SIGKILL included. The parent's id is looked at
as well, since a process that the parent forked (by `multiprocessing`, say) and that outlives it
holds the pipe open. Imports next to nothing: what a child does while a run starts, the run waits
for.
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
"""Told, since a child whose parent died before it could look would take another for its parent."""
_LOOK_EVERY_S = 0.5


def tell_parent(line: bytes) -> None:
    """Print one line at once, if there is still somebody to read it."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), line)


def answer_parent(answer: Callable[[], bytes]) -> int:
    """The exit code of what `run_child` runs: the answer is printed, or why there is none."""
    try:
        said = answer()
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(said)
    return 0


async def parent_gone() -> None:
    """Return at the end of our standard input, at SIGTERM, or when our parent is another.

    Called on the loop that the process serves on.
    """
    import asyncio  # noqa: PLC0415 - only those that serve need it
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
    """The next line of our standard input, without its end.

    Args:
        within_s: How long to wait for one, seconds.

    Returns:
        The line; empty when the parent has gone, None when it said nothing in that time.
    """
    if not _has_parent():
        return b""
    if not select.select([sys.stdin], [], [], within_s)[0]:
        return None
    return b"".join(iter(_next_byte, b"\n"))


def _next_byte() -> bytes:
    # A buffer would take the line after this one, too, of which `select` knows nothing then. What
    # ends without a line feed ends the line.
    return os.read(sys.stdin.fileno(), 1) or b"\n"


def _has_parent() -> bool:
    """Whether the process that started us is there; taken to be for one started by hand."""
    return os.environ.get(PARENT_PID) in {None, str(os.getppid())}
