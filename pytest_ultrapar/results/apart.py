"""Reading tables in a process of its own: pyarrow weighs 50 MB in whoever imports it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_STDERR_SHOWN = 2_000


def read_apart(module: str, run_dir: Path) -> bytes:
    """What `python -m MODULE RUN_DIR` writes to its standard output.

    Args:
        module: Full name of a module of this package.
        run_dir: The run directory.

    Raises:
        ResultsError: It ended with another exit code than 0; the message is what it said.
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-m", module, str(run_dir.absolute())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
        raise ResultsError(reason or f"reading {run_dir} ended with exit code {done.returncode}")
    return done.stdout


def read_rows(run_dir: Path, name: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Columns of one table of a finished run, Parquet or JSON lines. For that process only.

    Raises:
        ResultsError: There is no such table, or it cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.json as pj  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        if (run_dir / f"{name}.parquet").exists():
            table = pq.read_table(run_dir / f"{name}.parquet", columns=list(columns))
        elif (run_dir / f"{name}.jsonl").exists():
            table = pj.read_json(run_dir / f"{name}.jsonl").select(list(columns))
        else:
            msg = f"{run_dir} has no results: the run has not ended (finish it: --ultrapar-resume)"
            raise ResultsError(msg)
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        msg = f"cannot read the {name} of {run_dir}: {error}"
        raise ResultsError(msg) from error
    return rows
