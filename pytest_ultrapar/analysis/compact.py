"""Compaction in a process of its own: `python -m pytest_ultrapar.analysis.compact RUN_DIR`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.process import FOLLOW, WAIT, unheard
from pytest_ultrapar.child import line_from_parent
from pytest_ultrapar.errors import EXIT_UNUSABLE, ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.intake import Intake
    from pytest_ultrapar.analysis.run_summary import RunSummary


_SAY_EVERY_S = 0.5
_log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Compact one run; prints what was written or, with `--wait`, its summary as a line of JSON.

    Returns:
        0, or 4 after a message on standard error.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}",
        description="Rebuild a run's tables, summary.json and benchmark.json from its journal. "
        "Nothing is sent or graded again.",
    )
    parser.add_argument("run_dir", type=Path, help="the run directory")
    parser.add_argument(
        WAIT,
        action="store_true",
        help="for programs: load all, read the journal as it grows from the line `follow` on, at "
        "the next line print as JSON how far it is ([cases, of cases]) and at the end the summary",
    )
    options = parser.parse_args(arguments)
    # Neither modules nor records form cycles worth looking for in a process that ends soon: 0.1 s.
    gc.disable()
    # We multiply no matrices, and threads that wait to do so are in the way of forking.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    begun = None
    if options.wait:
        beside = _Beside(options.run_dir)
        beside.start()
        line = line_from_parent()
        if line == FOLLOW:
            beside.follow.set()
            line = line_from_parent()
        begun = beside.end()
        if not line:
            return 0
    # Heavy (pyarrow, numpy), and only this process needs it.
    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415

    try:
        summary = compact(options.run_dir, _Saying() if options.wait else unheard, begun)
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE
    said = msgspec.json.encode(summary) if options.wait else _sentence(summary).encode()
    sys.stdout.buffer.write(said + b"\n")
    return 0


def _sentence(summary: RunSummary) -> str:
    statistics = summary.statistics
    cases = "case" if statistics.n_planned == 1 else "cases"
    damage = f"; the journal has gaps: {len(summary.damage)}"
    return (
        f"wrote {', '.join(summary.files)} of run {summary.run_id}: {statistics.n_graded} of "
        f"{statistics.n_planned} {cases} graded{damage if summary.damage else ''}"
    )


class _Saying:
    """Tells the process that waits how far it is, twice a second at most."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        """So many cases are written."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _SAY_EVERY_S
            sys.stdout.buffer.write(msgspec.json.encode((done, total)) + b"\n")
            sys.stdout.buffer.flush()


_LOWEST = 19
_LOOK_EVERY_S = 0.1
_LOADED = (
    "pytest_ultrapar.analysis.compaction",
    "pytest_ultrapar.analysis.occupancy",
    "pytest_ultrapar.plan.lower_bound",
    "scipy.special",
    "scipy.optimize",
)


class _Beside(threading.Thread):
    """What can be done before a run is over, at the lowest priority: the run needs the CPU.

    A thread has a priority of its own on Linux, and what a process has lowered it may seldom raise
    again: the tables themselves are made on the main thread, since somebody waits for them.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(daemon=True)
        self._run_dir = run_dir
        self._ended = threading.Event()
        self._begun: Intake | None = None
        self.follow = threading.Event()

    def run(self) -> None:
        """Load what the end needs, then take up the journal as it grows."""
        if sys.platform == "linux":
            with suppress(OSError):  # a sandbox may forbid even this
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
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
            _log.warning("the journal was not read ahead: %r", error)

    def _follow(self) -> None:
        from pytest_ultrapar.analysis.intake import Intake  # noqa: PLC0415 - as above

        taken = Intake(self._run_dir)
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
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All is on the disk, and somebody waits for our end: taking numpy and scipy down takes 0.1 s.
    os._exit(code)
