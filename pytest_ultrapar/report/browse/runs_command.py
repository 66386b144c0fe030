"""`ultrapar runs`: which runs there are."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from pytest_ultrapar.report.browse.screen import table_width, write

NAME = "runs"
SUMMARY = "list the runs in a folder, newest first"
DESCRIPTION = """\
List the runs in a folder and in the benches there, newest first: whether they are complete, graded
and planned cases, the solved share of the graded ones, the time of the last session, cost and size.

    ultrapar runs
    ultrapar runs /data/runs --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar runs`."""
    add_folder(parser)
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object per run, one on each line"
    )


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Declare the argument that names a folder of runs."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=_folder,
        default=Path(".ultrapar"),
        help="the folder in which runs stand (default: .ultrapar)",
    )


def _folder(name: str) -> Path:
    # `Path("")` is the current folder: a shell variable that is not set must not clean that.
    if not name:
        msg = "an empty name names no folder; leave it out for .ultrapar, or write . for this one"
        raise argparse.ArgumentTypeError(msg)
    return Path(name)


def run(arguments: argparse.Namespace) -> int:
    """Print them.

    Raises:
        ConfigError: There is no such folder, or it is a run.
    """
    import msgspec  # noqa: PLC0415 - structs of whole runs, as the next; not for `--help`

    from pytest_ultrapar.report.browse.run_folder import find_runs  # noqa: PLC0415
    from pytest_ultrapar.report.browse.run_lines import run_table, sum_line  # noqa: PLC0415

    found = find_runs(arguments.folder, datetime.now(UTC))
    if arguments.json:
        # Unlike msgspec it has a form for names of directories that are no UTF-8.
        lines = [json.dumps(msgspec.to_builtins(one)) for one in found]
    else:
        table = run_table(found, width=table_width()) if found else []
        lines = [*table, sum_line(found)]
    write("".join(f"{line}\n" for line in lines))
    return 0
