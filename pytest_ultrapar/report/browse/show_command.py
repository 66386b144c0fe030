"""`ultrapar show`: show the cases of a run, or one whole case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.report.browse.screen import table_width, write, write_paged

if TYPE_CHECKING:
    import argparse

NAME = "show"
SUMMARY = "list the cases in a run, or show one case with its conversation"
DESCRIPTION = """\
List the cases in a run, failures first, or show one case: its grade, its requests and its
conversation. If a run is in progress, interrupted or damaged, you see everything that can be read.
Specify a run by its directory, by its id, or as latest. Specify a case by its id, its node id, or a
part of its node id that matches no other case. If a test or an error gave a reason for an outcome,
the list shows the reason below the case. With --failed, the list leaves out cases that are solved,
scored, skipped, running or waiting, unless their test failed.

    ultrapar show
    ultrapar show --failed
    ultrapar show latest small-hard-3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar show`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="latest",
        help="the run: its directory, its id, or latest (default: latest)",
    )
    parser.add_argument(
        "case", metavar="CASE", nargs="?", help="show this case: its id, or a part of its node id"
    )
    parser.add_argument(
        "--failed", action="store_true", help="list only failed cases (defined above)"
    )
    parser.add_argument(
        "--no-pager",
        action="store_true",
        help="do not use $PAGER for output longer than the screen",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the cases of a run, or one case.

    Raises:
        ConfigError: The run or case does not exist.
        ResultsError: The run cannot be read.
    """
    from pytest_ultrapar.report.browse.case_lines import case_lines, list_lines  # noqa: PLC0415 - slow
    from pytest_ultrapar.report.browse.run_cases import EpisodeReader, read_run_cases  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import resolve_run  # noqa: PLC0415

    if arguments.case is not None and arguments.failed:
        refuse("--failed lists cases; leave it out to show one case")
    found = read_run_cases(resolve_run(arguments.run))
    with EpisodeReader(found) as reader:
        if arguments.case is not None:
            lines = case_lines(found, found.find(arguments.case), reader, width=table_width())
        else:
            shown = [one for one in found.ordered() if one.failed or not arguments.failed]
            lines = list_lines(found, shown, reader, width=table_width())
        text = "".join(f"{line}\n" for line in lines)
    (write if arguments.no_pager else write_paged)(text)
    return 0
