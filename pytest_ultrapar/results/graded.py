"""Which cases of a finished run were graded: `python -m pytest_ultrapar.results.graded RUN_DIR`.

In a process of its own, since reading the table needs pyarrow, which weighs 50 MB in whoever
imports it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.records import Outcome

GRADED: frozenset[Outcome] = frozenset({"solved", "partial", "unsolved"})
"""Outcomes that count in scores and coverage; all others say nothing of the model."""

_STDERR_SHOWN = 2_000


def graded_in_subprocess(run_dir: Path) -> frozenset[str]:
    """Case ids of the graded cases of a finished run.

    Raises:
        ResultsError: It has no readable table of results.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-m", __name__, str(run_dir.absolute())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
        raise ResultsError(reason or f"reading {run_dir} ended with exit code {done.returncode}")
    return frozenset(msgspec.json.decode(done.stdout, type=list[str]))


def graded(run_dir: Path) -> list[str]:
    """Case ids of the graded cases in a run's table of results, Parquet or JSON lines.

    Raises:
        ResultsError: There is no such table, or it cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.json as pj  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = ["case_id", "outcome"]
    try:
        if (run_dir / "results.parquet").exists():
            table = pq.read_table(run_dir / "results.parquet", columns=columns)
        elif (run_dir / "results.jsonl").exists():
            table = pj.read_json(run_dir / "results.jsonl").select(columns)
        else:
            msg = f"{run_dir} has no results: the run has not ended (finish it: --ultrapar-resume)"
            raise ResultsError(msg)
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot read the results of {run_dir}: {error}"
        raise ResultsError(msg) from error
    rows = zip(table["case_id"].to_pylist(), table["outcome"].to_pylist(), strict=True)
    return [case_id for case_id, outcome in rows if outcome in GRADED]


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(msgspec.json.encode(graded(Path(sys.argv[1]))))
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
