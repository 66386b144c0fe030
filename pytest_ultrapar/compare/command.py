"""`ultrapar compare`: finished runs beside each other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_ultrapar.report.sections import MOST_OF_A_COMMENT, markdown_within, text_lines

if TYPE_CHECKING:
    import argparse

NAME = "compare"
SUMMARY = "show two or more finished runs side by side, paired by case"
DESCRIPTION = """\
Show finished runs beside the first of them, paired by case: speed, latency, coverage, scores of
each model, and which cells changed. The verdict comes first. Cases that only one run has are left
out; these and all other differences between the runs are listed. Only scores that changed beyond
chance are shown; --all shows every score. A run is named by its directory, its id, or latest.

    ultrapar compare runs/main latest
    ultrapar compare runs/main runs/a runs/b --markdown
    ultrapar compare runs/main latest --html comparison.html

A page has all of this, and the cases that one run solved and the other did not, with what both
said, of the last run beside the baseline; of all runs it shows solved rates, times and costs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar compare`."""
    parser.add_argument(
        "base", metavar="BASELINE", help="the run that all others are compared with"
    )
    parser.add_argument("new", metavar="NEW", nargs="+", help="a run to compare with it")
    parser.add_argument(
        "--all", action="store_true", help="list every score of every model, changed or not"
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--markdown", action="store_true", help="print GitHub-flavoured Markdown")
    shapes.add_argument("--html", metavar="FILE", help="write a page, one file that works offline")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison, or write its page; the exit code.

    Raises:
        ConfigError: A run cannot be used, or has no case in common with the baseline; or the page
            may not be there.
        ResultsError: The page cannot be written.
    """
    # Structs of a whole run and the tables' reader are needed to run only, not for `--help`.
    from pytest_ultrapar.analysis.measured_run import find_measured_run  # noqa: PLC0415
    from pytest_ultrapar.compare.comparison import compare_runs  # noqa: PLC0415
    from pytest_ultrapar.compare.report import comparison_sections  # noqa: PLC0415
    from pytest_ultrapar.report.pages.out_file import out_file  # noqa: PLC0415

    path = None if arguments.html is None else out_file(arguments.html, "--html")
    base = find_measured_run(arguments.base)
    others = [find_measured_run(name) for name in arguments.new]
    comparisons = compare_runs(base, others)
    if path is not None:
        from pytest_ultrapar.compare.page import render  # noqa: PLC0415
        from pytest_ultrapar.system.files import write_whole  # noqa: PLC0415

        write_whole(path, render(base, comparisons))
        sys.stdout.write(f"{arguments.html}\n")
        return 0
    sections = comparison_sections(base, comparisons, every_look=arguments.all)
    if arguments.markdown:
        sys.stdout.write(markdown_within(sections, MOST_OF_A_COMMENT))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in text_lines(sections)))
    return 0
