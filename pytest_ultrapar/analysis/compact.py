"""Compaction in a process of its own: `python -m pytest_ultrapar.analysis.compact RUN_DIR`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.process import WAIT, unheard
from pytest_ultrapar.child import line_from_parent, parent_has_spoken
from pytest_ultrapar.errors import EXIT_UNUSABLE, ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.run_summary import RunSummary


_SAY_EVERY_S = 0.5


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
        help="for programs: load all, wait for a line of input, then print as JSON how far it is "
        "([cases, of cases]) and at the end the summary",
    )
    options = parser.parse_args(arguments)
    # Neither modules nor records form cycles worth looking for in a process that ends soon: 0.1 s.
    gc.disable()
    # We multiply no matrices, and threads that wait to do so are in the way of forking.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.wait:
        _ask_machine()
    # Heavy (pyarrow, numpy), and only this process needs it.
    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415
    from pytest_ultrapar.plan import lower_bound  # noqa: F401, PLC0415
    from pytest_ultrapar.store import parquet  # noqa: F401, PLC0415

    if options.wait:
        # What a run may do without: once it is over it loads what it needs, and somebody waits.
        for module in ("scipy.special", "scipy.optimize"):
            if not parent_has_spoken():
                import_module(module)
        if not line_from_parent():
            return 0
    try:
        summary = compact(options.run_dir, _Saying() if options.wait else unheard)
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


def _ask_machine() -> None:
    """Before numpy is there: cpuinfo, which pytest-benchmark asks, forks."""
    from pytest_ultrapar.analysis import benchmark_json  # noqa: PLC0415

    benchmark_json.machine_info()
    benchmark_json.commit_info()


if __name__ == "__main__":
    raise SystemExit(main())
