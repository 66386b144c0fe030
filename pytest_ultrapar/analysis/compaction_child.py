"""The process that compacts a run after its end.

    python -m pytest_ultrapar.analysis.compaction_child RUN [MODULE ...]

The process is started at the beginning of the run. During the run, it prepares for the end: it
imports modules first, and then reads the journal as it grows. The run needs most of the CPU. So
this process leaves the CPU to others until the run is waiting for the tables (`CpuYield`,
`Reader`). This module imports little at the top, because importing everything takes 75 ms of CPU
time. On a busy machine, this would delay the first request.
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

    from pytest_ultrapar.analysis.journal_scan import JournalScan

FOLLOW = b"follow"
"""The line that tells this process that the run is planned and that its journal begins."""
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
"""Modules that are needed at the end of the run. Once the run is waiting for the tables, modules
are no longer loaded in advance, but only when they are used."""
_STEP_S = 0.002
"""How long the process works before it checks again whether other processes want the CPU. A check
takes 10 us."""
_OTHERS_SHARE = 0.2
"""Even on an idle machine, interrupts and file access keep a step off the CPU for up to this share
of its time."""
_BREAK = 10
"""The length of a break, as a multiple of the CPU time of the step before it. On a busy core, this
process therefore gets an eleventh of the time."""
_LONGEST_BREAK_S = 1.0
_LOWEST = 19


def main() -> int:
    """Compact the given run, then call `at_end` in each given module.

    When the line `follow` arrives on standard input, begin to read the journal as it grows. When
    the next line arrives, compact the run: print the progress as JSON (`[written cases, all
    cases]`) and finally the summary that the parent is waiting for. After one more line, call
    `at_end`, which may write an HTML report. If standard input is closed before the line that
    starts the compaction, do not compact.

    Returns:
        0 after success; 4 after an error, with a message on standard error.
    """
    run_dir, *afterwards = sys.argv[1:]
    begun = work_ahead(run_dir, CpuYield(line_from_parent), afterwards)
    from pathlib import Path  # noqa: PLC0415 - already loaded, if there was time

    import msgspec  # noqa: PLC0415

    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415
    from pytest_ultrapar.errors import EXIT_UNUSABLE, UltraparError  # noqa: PLC0415

    try:
        summary = compact(Path(run_dir), _Saying(), begun)
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
        sys.stdout.buffer.flush()
        # Wait for the parent, because it may first add figures to the summary. An empty line means
        # that the parent has ended.
        while afterwards and line_from_parent(_LOOK_EVERY_S) is None:
            pass
        for module in afterwards:
            import_module(module).at_end(Path(run_dir))
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE
    return 0


class _Saying:
    """Reports the progress to the parent process, at most twice a second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Report how many cases have been written, and how many there are."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _SAY_EVERY_S
            sys.stdout.buffer.write(b"[%d,%d]\n" % (done, total))
            sys.stdout.buffer.flush()


class CpuYield:
    """Leaves the CPU to other processes until the parent is waiting, and reads the parent's lines.

    A low priority would also leave the CPU to others. But only privileged processes may raise their
    priority again later. At the end of a run, an import at the lowest priority would take half a
    minute on a busy machine. So this process keeps its ordinary priority. Instead, while others
    want the CPU, it takes breaks between importing the modules in `_LOADED`. If there is only one
    core, it takes a break before every single module that is imported. For this purpose, the object
    is also a finder in `sys.meta_path` that finds nothing.

    Args:
        hear: Waits for the parent's next line, for at most the given number of seconds. Returns the
            line, an empty line if the parent has ended, or None if no line arrived in time.
        clock: Returns the wall time and the CPU time of this thread, in seconds.

    Attributes:
        follows: Whether there is a journal to follow.
        is_awaited: Whether the parent is waiting for the tables. From then on there are no more
            breaks.
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
        """Take a break if one is due, and let other finders find the module."""
        self.take()

    def take(self) -> bool:
        """Take a break if one is due; return whether the parent is waiting.

        Raises:
            SystemExit: The parent has ended.
        """
        if self.is_awaited:
            return True
        now_s, cpu_s = self._clock()
        step_s, step_cpu_s = now_s - self._step[0], cpu_s - self._step[1]
        if step_s >= _STEP_S:
            self.rest(break_s(step_s, step_cpu_s))
        return self.is_awaited

    def rest(self, length_s: float) -> None:
        """Do nothing for `length_s` seconds, or until the parent's next line arrives.

        Raises:
            SystemExit: The parent has ended.
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
        """Do nothing until the parent is waiting or, with `planned`, until the run is planned.

        Raises:
            SystemExit: The parent has ended.
        """
        while not (self.is_awaited or (planned and self.follows)):
            self.rest(_LOOK_EVERY_S)


def break_s(step_s: float, cpu_s: float) -> float:
    """Return how long the break after a step of work should last. Pure.

    Args:
        step_s: How long the step took, in seconds.
        cpu_s: How much CPU time this process used in the step, in seconds.
    """
    if step_s - cpu_s <= _OTHERS_SHARE * step_s:
        return 0.0
    return min(_BREAK * cpu_s, _LONGEST_BREAK_S)


def work_ahead(
    run_dir: str, breaks: CpuYield, afterwards: Sequence[str] = ()
) -> JournalScan | None:
    """Until the parent is waiting, load the modules needed at the end and read the growing journal.

    Args:
        run_dir: The run directory.
        breaks: Decides when to leave the CPU to others.
        afterwards: More modules that are needed at the end.

    Returns:
        The records that were read so far; None if none were read or an error occurred.

    Raises:
        SystemExit: The parent has ended.
    """
    if len(os.sched_getaffinity(0)) == 1:
        # With only one core, each step would delay a request, especially the first one.
        breaks.rest_until_told(planned=True)
        sys.meta_path.insert(0, breaks)
    from pytest_ultrapar.analysis import benchmark_json  # noqa: PLC0415

    # Do this before numpy is loaded, because pytest-benchmark uses cpuinfo, which forks.
    benchmark_json.machine_info()
    benchmark_json.commit_info()
    breaks.rest(0.0)  # this time was used by other programs
    for module in (*_LOADED, *afterwards):
        if breaks.take():
            return None
        # Ignore errors here: they are raised again at the end, when the module is needed.
        with suppress(Exception):
            import_module(module)
    breaks.rest_until_told(planned=True)
    if breaks.is_awaited:
        return None
    # Only log an error here. The whole journal is read again at the end, and the error is then
    # raised again, unless it occurred only because the journal was unfinished.
    try:
        return _follow(run_dir, breaks)
    except Exception as error:  # noqa: BLE001 - the journal is read again at the end
        import logging  # noqa: PLC0415 - rare

        logging.getLogger(__name__).warning("could not read the journal in advance: %r", error)
    breaks.rest_until_told()
    return None


def _follow(run_dir: str, breaks: CpuYield) -> JournalScan:
    from pathlib import Path  # noqa: PLC0415 - as all imports here

    from pytest_ultrapar.analysis.journal_scan import JournalScan  # noqa: PLC0415
    from pytest_ultrapar.analysis.plan.lower_bound import RequestClass, lower_bound  # noqa: PLC0415
    from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415

    manifest = read_manifest(Path(run_dir))
    requests = [RequestClass(one, 1.0, 1) for one in {lane.model for lane in manifest.pool_lanes}]
    # Load the solver that the bound needs for some pools; this takes 0.1 s.
    lower_bound(manifest.pool_lanes, manifest.pool_limits, requests)
    sys.meta_path = [finder for finder in sys.meta_path if finder is not breaks]
    reader = Reader(JournalScan(Path(run_dir)))
    reader.start()
    breaks.rest_until_told()
    return reader.end()


class Reader(threading.Thread):
    """Reads the journal as it grows, at the lowest priority.

    Only privileged processes may raise a priority again. So the low priority applies to this thread
    alone, not to the whole process. `end` waits until this thread has finished its current record.
    The caller then reads the rest at ordinary priority. On systems where threads have no priority
    of their own, this thread has the priority of the process.
    """

    def __init__(self, taken: JournalScan) -> None:
        super().__init__(name="ultrapar-reader", daemon=True)
        self._taken = taken
        self._ended = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Read new records ten times a second until `end` is called."""
        if sys.platform == "linux":
            with suppress(OSError):  # a sandbox may forbid even this
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        try:
            while not self._ended.wait(_LOOK_EVERY_S):
                self._taken.read_new(self._ended.is_set)
        except Exception as error:  # noqa: BLE001 - `end` raises it
            self._error = error

    def end(self) -> JournalScan:
        """Stop, and return the records that were read.

        Raises:
            Exception: The error that stopped the reading.
        """
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error
        return self._taken


if __name__ == "__main__":
    import gc

    # The garbage collector would take 0.1 s, and it finds few cycles in a process that ends soon.
    gc.disable()
    # This process multiplies no matrices, and OpenBLAS's threads would make forking unsafe.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All files are written, and the parent is waiting. An ordinary exit would take 0.1 s more,
    # because it unloads numpy and scipy.
    os._exit(code)
