"""The process that compacts a run when it is over.

    python -m pytest_ultrapar.analysis.compactor RUN [MODULE]

It starts with the run, which needs the CPU more, and does ahead of the end what it can: imports
first of all, then what the journal says as it grows. Until somebody waits for it, it leaves the CPU
to others (`Breaks`, `Reader`). This module itself imports next to nothing: the rest takes 75 ms of
CPU, which on a busy machine the run's first request waited for.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from pytest_ultrapar.system.parent import line_from_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ultrapar.analysis.intake import Intake

FOLLOW = b"follow"
"""The run is planned, and its journal begins."""
_SAY_EVERY_S = 0.5
_LOOK_EVERY_S = 0.1
_LOADED = (
    "msgspec",
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pytest_ultrapar.analysis.compaction",
    "pytest_ultrapar.analysis.occupancy",
    "pytest_ultrapar.analysis.plan.lower_bound",
    "scipy.special",
)
"""What the end needs; once somebody waits, it loads only what it uses."""
_STEP_S = 0.002
"""So long we work before we look whether others wanted the CPU; a look takes 10 us."""
_OTHERS_SHARE = 0.2
"""Of a step's time: so much also passes on an idle machine, for interrupts and reading files."""
_BREAK = 10
"""As often as long as we worked: of a core that is wanted we take an eleventh."""
_LONGEST_BREAK_S = 1.0
_LOWEST = 19


def main() -> int:
    """Compact the run that the command line names, then call `at_end` of the module named there.

    At the line `follow` on the standard input it begins to read the journal as it grows, at the
    next line it prints as JSON how far it is ([cases, of cases]) and at the end the summary, for
    which somebody waits; what comes then, such as a page, needs one more line. The input's end
    without one means: never.

    Returns:
        0, or 4 after a message on standard error.
    """
    run_dir, *afterwards = sys.argv[1:]
    begun = work_ahead(run_dir, Breaks(line_from_parent), afterwards)
    from pathlib import Path  # noqa: PLC0415 - imported with breaks, if there was time

    import msgspec  # noqa: PLC0415

    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415
    from pytest_ultrapar.errors import EXIT_UNUSABLE, UltraparError  # noqa: PLC0415

    try:
        summary = compact(Path(run_dir), _Saying(), begun)
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
        sys.stdout.buffer.flush()
        # The parent may have figures to add to the summary first; one that has gone has none.
        while afterwards and line_from_parent(_LOOK_EVERY_S) is None:
            pass
        for module in afterwards:
            import_module(module).at_end(Path(run_dir))
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE
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


class Breaks:
    """Leaves the CPU to others while nobody waits for us, and hears when somebody does.

    A low priority would do that too, but only the privileged may raise it again, and at the end of
    a run an import that was begun at the lowest one takes half a minute on a busy machine. So we
    load at an ordinary one and take breaks as long as others want the CPU, between two modules of
    `_LOADED`. On one core it is before each module that is imported: this is a finder of
    `sys.meta_path`, too, which finds nothing.

    Args:
        hear: Waits so many seconds for the next line from who started us; returns it, an empty one
            when they have gone, None when there was none.
        clock: Seconds of wall time and of CPU time of this thread.

    Attributes:
        follows: Whether there is a journal to follow.
        is_awaited: Whether somebody waits for the tables; from then on there are no breaks.
    """

    def __init__(
        self,
        hear: Callable[[float], bytes | None],
        clock: Callable[[], tuple[float, float]] = lambda: (time.monotonic(), time.thread_time()),
    ) -> None:
        self._hear = hear
        self._clock = clock
        self.follows = False
        self.is_awaited = False
        self._step = clock()

    def find_spec(self, *_: object) -> None:
        """Take a break if it is time for one; the module is found by others."""
        self.take()

    def take(self) -> bool:
        """Take a break if it is time for one; returns whether somebody waits for us.

        Raises:
            SystemExit: Who started us has gone.
        """
        if self.is_awaited:
            return True
        now_s, cpu_s = self._clock()
        step_s, step_cpu_s = now_s - self._step[0], cpu_s - self._step[1]
        if step_s >= _STEP_S:
            self.rest(break_s(step_s, step_cpu_s))
        return self.is_awaited

    def rest(self, length_s: float) -> None:
        """Do nothing for so long, or until somebody says something.

        Raises:
            SystemExit: Who started us has gone.
        """
        line = self._hear(length_s)
        self._step = self._clock()
        if line is None:
            return
        if not line:
            raise SystemExit
        if line == FOLLOW:
            self.follows = True
        else:
            self.is_awaited = True

    def rest_until_told(self, *, planned: bool = False) -> None:
        """Do nothing until somebody waits for us, or, if asked for, until the run is planned.

        Raises:
            SystemExit: Who started us has gone.
        """
        while not (self.is_awaited or (planned and self.follows)):
            self.rest(_LOOK_EVERY_S)


def break_s(step_s: float, cpu_s: float) -> float:
    """How long to leave the CPU alone after a step of work; pure.

    Args:
        step_s: What the step took.
        cpu_s: How much of that the CPU was ours.
    """
    if step_s - cpu_s <= _OTHERS_SHARE * step_s:
        return 0.0
    return min(_BREAK * cpu_s, _LONGEST_BREAK_S)


def work_ahead(run_dir: str, breaks: Breaks, afterwards: Sequence[str] = ()) -> Intake | None:
    """Load what the end needs and take up the journal as it grows, until somebody waits.

    Args:
        run_dir: The run directory.
        breaks: When to leave the CPU to others.
        afterwards: Modules that are needed when the tables are made.

    Returns:
        What was taken up; None where nothing was or anything went wrong.

    Raises:
        SystemExit: Who started us has gone.
    """
    if len(os.sched_getaffinity(0)) == 1:
        # Each step would delay the first request there, and then the next.
        breaks.rest_until_told(planned=True)
        sys.meta_path.insert(0, breaks)
    from pytest_ultrapar.analysis import benchmark_json  # noqa: PLC0415

    # Before numpy is there: cpuinfo, which pytest-benchmark asks, forks.
    benchmark_json.machine_info()
    benchmark_json.commit_info()
    breaks.rest(0.0)  # the time went by in other programs
    for module in (*_LOADED, *afterwards):
        if breaks.take():
            return None
        # What is wrong with one is heard of where it is needed, at the end.
        with suppress(Exception):
            import_module(module)
    breaks.rest_until_told(planned=True)
    if breaks.is_awaited:
        return None
    # Whatever goes wrong here goes wrong once more at the end, when somebody is there to hear of
    # it; or it was because the run went on.
    try:
        return _follow(run_dir, breaks)
    except Exception as error:  # noqa: BLE001 - the run is read anew at its end
        import logging  # noqa: PLC0415 - seldom

        logging.getLogger(__name__).warning("the journal was not read ahead: %r", error)
    breaks.rest_until_told()
    return None


def _follow(run_dir: str, breaks: Breaks) -> Intake:
    from pathlib import Path  # noqa: PLC0415 - as all imports here

    from pytest_ultrapar.analysis.intake import Intake  # noqa: PLC0415
    from pytest_ultrapar.analysis.plan.lower_bound import RequestClass, lower_bound  # noqa: PLC0415
    from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415

    manifest = read_manifest(Path(run_dir))
    requests = [RequestClass(one, 1.0, 1) for one in {lane.model for lane in manifest.pool_lanes}]
    # The bound of few pools needs a solver, 0.1 s to load.
    lower_bound(manifest.pool_lanes, manifest.pool_limits, requests)
    sys.meta_path = [finder for finder in sys.meta_path if finder is not breaks]
    reader = Reader(Intake(Path(run_dir)))
    reader.start()
    breaks.rest_until_told()
    return reader.end()


class Reader(threading.Thread):
    """Takes up the journal as it grows, at the lowest priority: what others leave of the CPU.

    Only the privileged may raise a priority again. So it is this thread's alone, which at the end
    is waited for no longer than it takes to finish a record; the rest is done at an ordinary one.
    Where threads have no priority of their own, it keeps that of the process.
    """

    def __init__(self, taken: Intake) -> None:
        super().__init__(name="ultrapar-reader", daemon=True)
        self._taken = taken
        self._ended = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Read until the end, ten times a second what has come."""
        if sys.platform == "linux":
            with suppress(OSError):  # a sandbox may forbid even this
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        try:
            while not self._ended.wait(_LOOK_EVERY_S):
                self._taken.take_up(self._ended.is_set)
        except Exception as error:  # noqa: BLE001 - who ends it hears of it
            self._error = error

    def end(self) -> Intake:
        """Stop; what was taken up.

        Raises:
            Exception: What went wrong while it was.
        """
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error
        return self._taken


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
