"""`ultrapar runs`: which runs there are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.report.text import bytes_text, duration, percent, text_table

if TYPE_CHECKING:
    import argparse

    from pytest_ultrapar.browse.runs import RunLine

NAME = "runs"
SUMMARY = "list the runs of a folder, the newest first"
DESCRIPTION = """\
List the runs of a folder with their state, results and sizes, the newest first.

    ultrapar runs
    ultrapar runs evals/.ultrapar --json
"""
HEADER = ("run", "started", "state", "cases", "solved", "time", "cost", "size", "models")
N_NAMES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar runs`."""
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="where the runs are (default: .ultrapar)"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each run")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code.

    Raises:
        ConfigError: There is no such folder.
    """
    import msgspec  # noqa: PLC0415 - structs of a whole run: 60 ms that `--help` need not take

    from pytest_ultrapar.browse.runs import runs_in  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import DEFAULT_PARENT  # noqa: PLC0415

    folder = Path(arguments.folder) if arguments.folder else DEFAULT_PARENT
    found = runs_in(folder)
    if arguments.json:
        sys.stdout.write("".join(f"{msgspec.json.encode(one).decode()}\n" for one in found))
        return 0
    if not found:
        sys.stdout.write(f"no runs in {folder}\n")
        return 0
    lines = text_table(HEADER, [row_of(one) for one in found], n_names=N_NAMES, width=10_000)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def row_of(line: RunLine) -> tuple[str, ...]:
    """A run as a row of the table."""
    started = "-" if line.started_at is None else f"{line.started_at:%Y-%m-%d %H:%M}"
    more = f" and {len(line.models) - 1} more" if len(line.models) > 1 else ""
    return (
        line.run_id,
        started,
        f"{line.state}{', SIMULATED' if line.simulated else ''}",
        f"{line.n_graded:,} of {line.n_cases:,}",
        "-" if line.solved is None else percent(line.solved),
        "-" if line.duration_s is None else duration(line.duration_s),
        "-" if line.cost is None else f"{line.cost:.4g} {line.currency}",
        bytes_text(line.n_bytes),
        line.trouble or "".join(line.models[:1]) + more,
    )
