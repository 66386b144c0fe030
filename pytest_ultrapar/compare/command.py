"""`ultrapar compare`: show finished runs side by side."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_ultrapar.report.sections import MOST_OF_A_COMMENT, markdown_within, text_lines

if TYPE_CHECKING:
    import argparse

NAME = "compare"
SUMMARY = "show two or more finished runs side by side, paired by case"
DESCRIPTION = """\
Compare finished runs with the first run, paired by case. The output shows the verdict, each
model's solve rate, and other differences between the runs. --full adds speed, latency, coverage,
every score and the changed cells. Cases that are in only one of the runs are left out; the output
shows their number. Specify a run by its directory, by its id, or as latest.

    ultrapar compare runs/main latest
    ultrapar compare runs/main runs/a runs/b --markdown
    ultrapar compare runs/main latest --html comparison.html

An HTML comparison shows all of this. It also lists the cases that only the first or only the last
run solved, with the answers of both runs. For all runs, it shows solve rates, times and costs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar compare`."""
    parser.add_argument(
        "base", metavar="BASELINE", help="the run that all others are compared with"
    )
    parser.add_argument("new", metavar="NEW", nargs="+", help="a run to compare with BASELINE")
    parser.add_argument(
        "--full", "--all", action="store_true", help="print every figure and score for every model"
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--markdown", action="store_true", help="print GitHub-flavoured Markdown")
    shapes.add_argument("--html", metavar="FILE", help="write one HTML file that works offline")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison, or write it as HTML; return the exit code.

    Raises:
        ConfigError: A run cannot be used or has no case in common with the baseline, or the path of
            the HTML file cannot be used.
        ResultsError: The HTML file cannot be written.
    """
    # Import these here, because `--help` does not need them: they define the data of a run and read
    # its tables.
    from pytest_ultrapar.analysis.measured_run import find_measured_run  # noqa: PLC0415
    from pytest_ultrapar.compare.comparison import compare_runs  # noqa: PLC0415
    from pytest_ultrapar.compare.report import brief_lines, comparison_sections  # noqa: PLC0415
    from pytest_ultrapar.report.browse.screen import table_width  # noqa: PLC0415
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
    sections = comparison_sections(base, comparisons, every_look=arguments.full)
    if arguments.markdown:
        sys.stdout.write(markdown_within(sections, MOST_OF_A_COMMENT))
        return 0
    width = min(table_width(), 100)
    lines = text_lines(sections) if arguments.full else brief_lines(base, comparisons, width)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0
