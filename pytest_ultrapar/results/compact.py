"""Compaction in a process of its own: `python -m pytest_ultrapar.results.compact RUN_DIR`.

pyarrow's 50 MB and the seconds of work are then not the controller's, and what kills the compaction
leaves the run with its journal, from which it can be done again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.results.run_summary import RunSummary

_STDERR_SHOWN = 2_000


def compact_in_subprocess(run_dir: Path, *, cwd: Path | None = None) -> RunSummary:
    """Compact a run in a new process and wait for it.

    Args:
        run_dir: The run directory.
        cwd: Where the suite stands, since the benchmark JSON names the commit found there.

    Raises:
        ResultsError: The process failed; the journal is as it was, and the message says how to try
            again.
    """
    from pytest_ultrapar.results.run_summary import RunSummary  # noqa: PLC0415

    package_root = str(Path(__file__).parents[2])
    python_path = os.environ.get("PYTHONPATH")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", __name__, str(run_dir.absolute())],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (package_root, python_path))),
            # Without it, `-m` would put the suite's own directory first among the modules.
            "PYTHONSAFEPATH": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
        msg = (
            f"no tables were written: {reason or f'exit code {done.returncode}'}\n"
            f"The journal is whole; try again with: python -m {__name__} {run_dir}"
        )
        raise ResultsError(msg)
    return msgspec.json.decode(done.stdout, type=RunSummary)


def main(arguments: list[str] | None = None) -> int:
    """Compact one run; prints its summary as one line of JSON.

    Returns:
        0, or 1 after a message on standard error.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=main.__doc__)
    parser.add_argument("run_dir", type=Path, help="the run directory")
    options = parser.parse_args(arguments)
    # Heavy (pyarrow, pytest-benchmark), and only this process needs it.
    from pytest_ultrapar.results.compaction import compact  # noqa: PLC0415

    try:
        summary = compact(options.run_dir)
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
