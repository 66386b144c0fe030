"""The process that compacts a run when it is over: `python -m pytest_ultrapar.analysis.beside DIR`.

It starts with the run, which needs the CPU more. What can be done before the end, imports first of
all, is done by a thread of the lowest priority, and this module itself imports next to nothing:
with the rest it takes 75 ms of CPU, which on a busy machine the run's first request waited for.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.intake import Intake

_SAY_EVERY_S = 0.5
_LOWEST = 19
_LOOK_EVERY_S = 0.1
_LOADED = (
    "pytest_ultrapar.analysis.compaction",
    "pytest_ultrapar.analysis.occupancy",
    "pytest_ultrapar.plan.lower_bound",
    "scipy.special",
    "scipy.optimize",
)


def main() -> int:
    """Compact the run that the command line names.

    At the line `follow` on the standard input it begins to read the journal as it grows, at the
    next line it prints as JSON how far it is ([cases, of cases]) and at the end the summary. The
    input's end without one means: never.

    Returns:
        0, or 4 after a message on standard error.
    """
    run_dir = sys.argv[1]
    beside = Beside(run_dir)
    beside.start()
    beside.can_listen.wait()
    from pytest_ultrapar.analysis.process import FOLLOW  # noqa: PLC0415 - `beside` has loaded it
    from pytest_ultrapar.child import line_from_parent  # noqa: PLC0415

    line = line_from_parent()
    if line == FOLLOW:
        beside.follow.set()
        line = line_from_parent()
    begun = beside.end()
    if not line:
        return 0
    from pathlib import Path  # noqa: PLC0415 - these, too

    import msgspec  # noqa: PLC0415

    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415
    from pytest_ultrapar.errors import EXIT_UNUSABLE, ResultsError  # noqa: PLC0415

    try:
        summary = compact(Path(run_dir), _Saying(), begun)
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE
    sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    return 0


class _Saying:
    """Tells the process that waits how far it is, twice a second at most."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        """So many cases are written."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _SAY_EVERY_S
            sys.stdout.buffer.write(b"[%d,%d]\n" % (done, total))
            sys.stdout.buffer.flush()


class Beside(threading.Thread):
    """What can be done before a run is over, at the lowest priority.

    A thread has a priority of its own on Linux, and what a process has lowered it may seldom raise
    again: the tables themselves are made on the main thread, since somebody waits for them.
    """

    def __init__(self, run_dir: str) -> None:
        super().__init__(daemon=True)
        self._run_dir = run_dir
        self._ended = threading.Event()
        self._begun: Intake | None = None
        self.can_listen = threading.Event()
        self.follow = threading.Event()

    def run(self) -> None:
        """Load what the end needs, then take up the journal as it grows."""
        if sys.platform == "linux":
            with suppress(OSError):  # a sandbox may forbid even this
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        try:
            import_module("pytest_ultrapar.analysis.process")
        finally:
            self.can_listen.set()
        _ask_machine()
        for module in _LOADED:
            if self._ended.is_set():
                return
            import_module(module)
        while not self.follow.wait(_LOOK_EVERY_S):
            if self._ended.is_set():
                return
        # Whatever goes wrong here goes wrong once more at the end, when somebody is there to hear
        # of it; or it was because the run went on.
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - the run is read anew at its end
            import logging  # noqa: PLC0415 - seldom

            logging.getLogger(__name__).warning("the journal was not read ahead: %r", error)

    def _follow(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - as all imports here

        from pytest_ultrapar.analysis.intake import Intake  # noqa: PLC0415

        taken = Intake(Path(self._run_dir))
        while not self._ended.wait(_LOOK_EVERY_S):
            taken.take_up(self._ended.is_set)
        self._begun = taken

    def end(self) -> Intake | None:
        """Stop; returns what was taken up, None where nothing was or anything went wrong."""
        self.follow.set()
        self._ended.set()
        if sys.platform == "linux" and self.is_alive():
            # Only the privileged may raise what was lowered; else its last steps stay slow.
            with suppress(OSError):
                own = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, self.native_id or 0, own)
        self.join()
        return self._begun


def _ask_machine() -> None:
    """Before numpy is there: cpuinfo, which pytest-benchmark asks, forks."""
    from pytest_ultrapar.analysis import benchmark_json  # noqa: PLC0415

    benchmark_json.machine_info()
    benchmark_json.commit_info()


if __name__ == "__main__":
    import gc

    # Neither modules nor records form cycles worth looking for in a process that ends soon: 0.1 s.
    gc.disable()
    # We multiply no matrices, and threads that wait to do so are in the way of forking.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All is on the disk, and somebody waits for our end: taking numpy and scipy down takes 0.1 s.
    os._exit(code)
