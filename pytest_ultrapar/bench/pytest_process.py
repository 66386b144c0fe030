"""pytest as a process of its own, that Ctrl-C ends as if it had been started by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

# -P: the `pytest` script does not put the current directory among the modules either.
_PYTEST = (sys.executable, "-P", "-m", "pytest", "-p", "pytest_ultrapar.bench.whole_runs")
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL = 128
"""Added to a signal's number, as shells do for the exit code of what it ended."""


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest, its output going where ours goes; returns its exit code.

    It is in a process group of its own, and signals that come to us are passed on to that group
    once: with Ctrl-C pytest ends in order (2), finished episodes are kept, and we go on to say so.
    In our own group it would get some signals twice, and its second one breaks off the end, too.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)

    with _handled(forward):
        child = subprocess.Popen(  # noqa: S603
            [*_PYTEST, *arguments], stdin=subprocess.DEVNULL, process_group=0
        )
        for number in early:
            os.killpg(child.pid, number)
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def check_pytest(arguments: Sequence[str], *, mode: str) -> tuple[int, str]:
    """Send nothing and show nothing; returns the exit code and what pytest said.

    Only the assignment of mode `phase` can be refused, and a plan makes it; in other modes
    collecting is enough, and takes half the time.
    """
    looks = "--ultrapar-plan" if mode == "phase" else "--collect-only"
    done = subprocess.run(  # noqa: S603
        [*_PYTEST, *arguments, looks, "-q"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


@contextmanager
def _handled(handler: signal._HANDLER) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
