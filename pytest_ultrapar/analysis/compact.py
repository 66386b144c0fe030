"""Compact a run manually: `python -m pytest_ultrapar.analysis.compact RUN_DIR`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import EXIT_UNUSABLE, ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.analysis.run_summary import RunSummary


def main(arguments: list[str] | None = None) -> int:
    """Compact one run, and print the names of the files that were written.

    Returns:
        0 after success; 4 after an error, with a message on standard error.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}",
        description="Rebuild a run's tables, summary.json and benchmark.json from its journal. "
        "This sends no requests and grades nothing.",
    )
    parser.add_argument("run_dir", type=Path, help="the run directory")
    options = parser.parse_args(arguments)
    # As in `compaction_child`.
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Loading pyarrow and numpy is slow, and `--help` does not need them.
    from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415

    try:
        summary = compact(options.run_dir)
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE
    sys.stdout.write(f"{_sentence(summary)}\n")
    return 0


def _sentence(summary: RunSummary) -> str:
    statistics = summary.statistics
    cases = "case" if statistics.n_planned == 1 else "cases"
    damage = f"; gaps in the journal: {len(summary.damage)}"
    return (
        f"wrote {', '.join(summary.files)} for run {summary.run_id}: {statistics.n_graded} of "
        f"{statistics.n_planned} {cases} graded{damage if summary.damage else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
