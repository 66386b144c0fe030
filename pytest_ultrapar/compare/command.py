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
    parser.add_argument("--markdown", action="store_true", help="print GitHub-flavoured Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison.

    Raises:
        ConfigError: A run cannot be used, or has no case in common with the baseline.
    """
    # Structs of a whole run and the tables' reader are needed to run only, not for `--help`.
    from pytest_ultrapar.analysis.measured_run import find_measured_run  # noqa: PLC0415
    from pytest_ultrapar.compare.comparison import compare_runs  # noqa: PLC0415
    from pytest_ultrapar.compare.report import (  # noqa: PLC0415
        comparison_sections,
        every_look,
        telling_looks,
    )

    base = find_measured_run(arguments.base)
    comparisons = compare_runs(base, [find_measured_run(name) for name in arguments.new])
    listed = every_look if arguments.all else telling_looks
    sections = comparison_sections(base, comparisons, listed)
    if arguments.markdown:
        sys.stdout.write(markdown_within(sections, MOST_OF_A_COMMENT))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in text_lines(sections)))
    return 0
