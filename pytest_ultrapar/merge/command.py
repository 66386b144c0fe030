"""`ultrapar merge`: combine the parts of a run into one run."""

from __future__ import annotations

import gc
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_ultrapar.merge.write_merged import MergedRun

NAME = "merge"
SUMMARY = "make one run from its parts: shards, or the hosts of a cluster run"
DESCRIPTION = """\
Make one run directory from several. The parts are the shards K/N of a suite, the hosts of a
cluster run, or runs with the same suite, seed and pool but different cases. They may have been
resumed, interrupted or damaged, and are not changed. The merged run gets tables, a report and an
HTML report like any run, and works with ultrapar show, report, compare and gate. If a case has a
result in several parts, only one counts: a measured result takes precedence over infra, and
otherwise the first result counts.

    ultrapar merge shards/* --out whole
    ultrapar merge run-a run-b run-c --out whole && ultrapar gate whole --rule 'solved_rate>=0.7'

Exit code 1: a shard is missing, a planned case never ran or was not graded, or coverage is too low.
Exit code 4: the runs are not parts of one run or cannot be read, or DIR is unusable. Otherwise: 0.
"""
_MOST_OF_A_PAGE = 100_000
"""The maximum number of cases for which an HTML report is written. For 100,000 cases, a report took
460 MB of memory and 37 MB of disk space, and browsers have problems with larger reports."""
_WIDTH = 100
_MOST_NAMED = 5
"""How many of the cases without a result are listed by name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar merge`."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="directory or id of a run to merge")
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="directory for the merged run, new or empty"
    )
    parser.add_argument(
        "--coverage",
        metavar="SHARE",
        help="minimum share of planned cases that must be graded for exit code 0 (default: 0.98)",
    )
    parser.add_argument(
        "--allow-differences",
        action="store_true",
        help="merge even if a model's max_tokens, parameters or address differ between the runs",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge the runs, print a summary, and return the exit code.

    Raises:
        ConfigError: The runs are not parts of one run, or the directory cannot be used.
        ResultsError: A file cannot be read or written.
    """
    coverage = _coverage(arguments.coverage)
    # Import this here: reading tables needs large packages, and `--help` does not need them.
    from pytest_ultrapar.coordinator.finish import failures  # noqa: PLC0415
    from pytest_ultrapar.merge.write_merged import merge  # noqa: PLC0415
    from pytest_ultrapar.report.merged import merged_lines  # noqa: PLC0415
    from pytest_ultrapar.report.terminal_summary import brief_lines  # noqa: PLC0415
    from pytest_ultrapar.report.text import visible  # noqa: PLC0415

    # Records form no cycles, and with a million cases, the garbage collector would take most of the
    # time.
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    made = merge(
        arguments.runs,
        Path(arguments.out),
        datetime.now(UTC),
        allow_differences=arguments.allow_differences,
    )
    for name in made.left_out:
        sys.stdout.write(f"{visible(name)} is left out: it was merged from runs in your list\n")
    has_page = _write_page(made)
    lines = brief_lines(
        made.summary,
        made.manifest.lanes,
        directory=str(made.directory),
        width=_WIDTH,
        has_page=has_page,
    )
    assert made.manifest.merged is not None
    lines += merged_lines(made.manifest.merged)
    found = (*made.faults, *failures(made.summary, coverage, "--coverage"))
    lines += _without_result(made)
    lines += [f"FAILED: {visible(failure)}" for failure in found]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if found else 0


def _coverage(text: str | None) -> float:
    from pytest_ultrapar.errors import refuse  # noqa: PLC0415
    from pytest_ultrapar.pool.settings import Options  # noqa: PLC0415

    if text is None:
        return Options.coverage.default
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        refuse(f"--coverage must be a number from 0 to 1 (got {text})")
    return share


def _without_result(made: MergedRun) -> Iterator[str]:
    """Yield lines that say which cases of a cluster run have no result, and how to get one."""
    from pytest_ultrapar.report.text import counted, visible  # noqa: PLC0415 - as above

    run, n = made.manifest.cluster_run, made.summary.n_without_grade
    if run is None or not n:
        return
    yield (
        f"no result for {counted(n, 'case')} of run {visible(run)}. To finish the run, join it "
        "again. If a host lost the result of a finished case, reopen the case first: "
        f"ultrapar cluster reopen {visible(run)} {visible(str(made.directory))}"
    )
    named = made.summary.never_ran[:_MOST_NAMED]
    for nodeid in named:
        yield f"  {visible(nodeid)}"
    if n > len(named):
        yield f"  and {n - len(named):,} more"


def _write_page(made: MergedRun) -> bool:
    """Write the HTML report, unless it is too large. Errors are printed, not raised."""
    from pytest_ultrapar.errors import UltraparError  # noqa: PLC0415
    from pytest_ultrapar.report.pages.page import write_page  # noqa: PLC0415
    from pytest_ultrapar.report.report_file import PAGE  # noqa: PLC0415

    n = made.summary.statistics.n_planned
    if n > _MOST_OF_A_PAGE:
        sys.stdout.write(
            f"no HTML report of {n:,} cases was written: use ultrapar report for one\n"
        )
        return False
    try:
        write_page(made.directory, made.directory / PAGE)
    except UltraparError as error:
        sys.stderr.write(f"the HTML report was not written: {error}\n")
        return False
    return True
