"""`ultrapar merge`: one run of several that are its parts."""

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

    from pytest_ultrapar.merge.merging import MergedRun

NAME = "merge"
SUMMARY = "make one run of several that are its parts: shards, or the hosts of a cluster run"
DESCRIPTION = """\
Make one run directory of several: the shards K/N of one suite, the hosts of one cluster run, or
runs of one suite, seed and pool that asked different cases. They may be resumed, interrupted or
damaged in part, and stay as they are. The whole has all that a run has: tables, report, page, and
ultrapar show, report, compare and gate. Of a case with a result in several parts one counts: a
measurement before infra, then the first.

    ultrapar merge shards/* --out whole
    ultrapar merge run-a run-b run-c --out whole && ultrapar gate whole --rule 'solved_rate>=0.7'

Exit code 0; 1 when a shard is missing, a planned case never ran or was not graded, or coverage is
too low; 4 when the runs are not parts of one whole or cannot be read, or DIR cannot be written.
"""
_MOST_OF_A_PAGE = 100_000
"""Cases. A page of 100,000 took 460 MB of memory and 37 MB of disk; no browser is glad of more."""
_WIDTH = 100
_MOST_NAMED = 5
"""Of cases without a result."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar merge`."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="a run's directory, or its id")
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="where the whole is to stand; new or empty"
    )
    parser.add_argument(
        "--coverage",
        metavar="SHARE",
        help="least share of planned cases that must be graded, else exit code 1 (default: 0.98)",
    )
    parser.add_argument(
        "--allow-differences",
        action="store_true",
        help="merge although max_tokens, parameters or address of a model differ between the runs",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, print the end of the whole run; 1 if cases of it have no result.

    Raises:
        ConfigError: The runs are not parts of one whole, or the directory cannot be used.
        ResultsError: A file cannot be read or written.
    """
    coverage = _coverage(arguments.coverage)
    # Tables: heavy imports that `--help` need not take.
    from pytest_ultrapar.coordinator.finish import failures  # noqa: PLC0415
    from pytest_ultrapar.merge.merging import merge  # noqa: PLC0415
    from pytest_ultrapar.report.brief import brief_lines  # noqa: PLC0415
    from pytest_ultrapar.report.merged import merged_lines  # noqa: PLC0415
    from pytest_ultrapar.report.text import visible  # noqa: PLC0415

    # Records form no cycles worth looking for; in a million cases that takes longer than the rest.
    gc.disable()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    made = merge(
        arguments.runs,
        Path(arguments.out),
        datetime.now(UTC),
        allow_differences=arguments.allow_differences,
    )
    for name in made.left_out:
        sys.stdout.write(f"{visible(name)} is left out: it was merged of other runs named\n")
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
    """Cases of a run of several hosts without a result, and how they get one."""
    from pytest_ultrapar.report.text import counted, visible  # noqa: PLC0415 - as above

    run, n = made.manifest.cluster_run, made.summary.n_without_grade
    if run is None or not n:
        return
    yield (
        f"{counted(n, 'case')} of run {visible(run)} without a result: joining the run finishes "
        "what nobody did; what the server has as done, though its host lost it, comes again after "
        f"ultrapar cluster reopen {visible(run)} {visible(str(made.directory))}"
    )
    named = made.summary.never_ran[:_MOST_NAMED]
    for nodeid in named:
        yield f"  {visible(nodeid)}"
    if n > len(named):
        yield f"  and {n - len(named):,} more"


def _write_page(made: MergedRun) -> bool:
    """Write the page of the whole, if one can show it; no merge fails because that cannot be."""
    from pytest_ultrapar.errors import UltraparError  # noqa: PLC0415
    from pytest_ultrapar.report.file import PAGE  # noqa: PLC0415
    from pytest_ultrapar.report.pages.page import write_page  # noqa: PLC0415

    n = made.summary.statistics.n_planned
    if n > _MOST_OF_A_PAGE:
        sys.stdout.write(f"no page of {n:,} cases is written; ultrapar report writes it\n")
        return False
    try:
        write_page(made.directory, made.directory / PAGE)
    except UltraparError as error:
        sys.stderr.write(f"the page was not written: {error}\n")
        return False
    return True
