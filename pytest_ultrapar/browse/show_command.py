"""`ultrapar show`: the cases of a run, or one with its conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

NAME = "show"
SUMMARY = "list the cases of a run, failures first, or show one with its conversation"
DESCRIPTION = """\
List the cases of a run, failures first. With a case, show its grade, what it waited for, its
conversation and its requests. A case is named by its node id, a part of it that no other has, or
its case id; a run by its directory, its id, or latest.

    ultrapar show latest
    ultrapar show latest --failed
    ultrapar show latest 'test_capital[gpt-France-r0]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar show`."""
    parser.add_argument("run", metavar="RUN", help="a run's directory, its id, or latest")
    parser.add_argument("case", metavar="CASE", nargs="?", help="the case to show")
    parser.add_argument(
        "--failed", action="store_true", help="list only the cases that were not solved"
    )
    parser.add_argument(
        "--no-pager", action="store_true", help="write it at once, also to a terminal"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code.

    Raises:
        ConfigError: There is no such run or case, or the run has no tables yet.
    """
    from pytest_ultrapar.browse.cases import (  # noqa: PLC0415 - 60 ms that `--help` need not take
        case_lines,
        find_case,
        list_lines,
        read_cases,
    )
    from pytest_ultrapar.store.run_directory import resolve_run  # noqa: PLC0415

    directory = resolve_run(arguments.run).resolve()
    rows = read_cases(directory)
    if arguments.case is not None:
        lines = case_lines(directory, find_case(rows, arguments.case))
    else:
        wanted = [row for row in rows if row["outcome"] != "solved"] if arguments.failed else rows
        lines = list_lines(wanted)
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace").decode()
    if sys.stdout.isatty() and not arguments.no_pager:
        import pydoc  # noqa: PLC0415 - 30 ms, for terminals only

        pydoc.pager(text)
    else:
        sys.stdout.write(text)
    return 0
