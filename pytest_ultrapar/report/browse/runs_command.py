"""`ultrapar runs`: list runs."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.browse.screen import table_width, write
from pytest_ultrapar.report.text import (
    columns_of,
    counted,
    duration,
    one_line,
    or_dash,
    percent,
    text_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.report.browse.run_folder import FoundRun

_UNITS = ("B", "kB", "MB", "GB", "TB")
NAME = "runs"
SUMMARY = "list the runs in a folder, newest first"
DESCRIPTION = """\
List the runs in a folder and in its benches, newest first. The columns show the state, graded and
planned cases, the solve rate, the duration of the last session, the cost, and the size.

    ultrapar runs
    ultrapar runs /data/runs --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar runs`."""
    add_folder(parser)
    parser.add_argument(
        "--json", action="store_true", help="print each run as a JSON object, one per line"
    )


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that names a folder of runs."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=_folder,
        default=Path(".ultrapar"),
        help="the folder that contains the runs (default: .ultrapar)",
    )


def _folder(name: str) -> Path:
    # Refuse an empty name, because `Path("")` is the current folder. Otherwise, a shell variable
    # that is not set could make `ultrapar clean` remove the runs there.
    if not name:
        raise argparse.ArgumentTypeError(
            "FOLDER is an empty string; leave it out for .ultrapar, or pass . for the current "
            "folder"
        )
    return Path(name)


def run(arguments: argparse.Namespace) -> int:
    """List the runs in a folder.

    Raises:
        ConfigError: The folder does not exist, or is a run.
    """
    # Import this here: it is slow to load, and `--help` does not need it.
    from pytest_ultrapar.report.browse.run_folder import find_runs  # noqa: PLC0415

    found = find_runs(arguments.folder, datetime.now(UTC))
    if arguments.json:
        # Unlike msgspec, `json` accepts names of directories that are not UTF-8.
        lines = [json.dumps(msgspec.to_builtins(one)) for one in found]
    else:
        table = run_table(found, width=table_width()) if found else []
        lines = [*table, sum_line(found)]
    write("".join(f"{line}\n" for line in lines))
    return 0


def run_table(runs: Sequence[FoundRun], *, width: int) -> list[str]:
    """Return a table with a line for each run.

    Args:
        runs: The runs, in the order of their lines.
        width: The width of a line, in characters.
    """
    header, rows = columns_of([_cells(run) for run in runs])
    return text_table(header, rows, n_names=3, width=width)


def sum_line(runs: Sequence[FoundRun]) -> str:
    """State the number of runs and their total size."""
    return f"{counted(len(runs), 'run')}, {size(sum(run.bytes for run in runs))}"


def size(n_bytes: int) -> str:
    """Return a size as a short text, such as `999 B`, `1.2 MB` or `34 GB`."""
    power = min((len(str(n_bytes)) - 1) // 3, len(_UNITS) - 1)
    amount = n_bytes / 1000**power
    digits = 1 if power and amount < 10 else 0  # noqa: PLR2004 - two digits
    return f"{amount:,.{digits}f} {_UNITS[power]}"


def _cells(run: FoundRun) -> dict[str, str]:
    cases = run.cases
    sample = f", sample of {run.drawn_from:,}" if run.drawn_from else ""
    return {
        "run": one_line(run.name),
        "state": f"{run.verdict}, SIMULATED" if run.simulated else run.verdict,
        "started (UTC)": f"{run.started_at:%Y-%m-%d %H:%M}",
        "cases": "-" if cases is None else f"{cases.graded:,}/{cases.planned:,}{sample}",
        "solved": or_dash(run.solved_rate, percent),
        "session": or_dash(run.duration_s, duration),
        "cost": "-" if run.cost is None or run.currency is None else money(run.cost, run.currency),
        "size": size(run.bytes),
    }
