"""Which cases of a finished run were graded: `python -m pytest_ultrapar.store.graded RUN_DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from pytest_ultrapar.child import run_child
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import GRADED
from pytest_ultrapar.store.table_rows import read_rows


def graded_in_subprocess(run_dir: Path) -> frozenset[str]:
    """Case ids of the graded cases of a finished run.

    Raises:
        ResultsError: It has no readable table of results.
    """
    return frozenset(
        msgspec.json.decode(run_child(__name__, str(run_dir.absolute())), type=list[str])
    )


def graded(run_dir: Path) -> list[str]:
    """Case ids of the graded cases in a run's table of results, Parquet or JSON lines.

    Raises:
        ResultsError: There is no such table, or it cannot be read.
    """
    rows = read_rows(run_dir, "results", ("case_id", "outcome"))
    return [row["case_id"] for row in rows if row["outcome"] in GRADED]


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(msgspec.json.encode(graded(Path(sys.argv[1]))))
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
