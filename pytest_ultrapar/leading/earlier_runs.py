"""Which of the runs that lie in `.ultrapar` tells a plan most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.results.cases_file import read_cases
from pytest_ultrapar.results.manifest import FILE_NAME as MANIFEST
from pytest_ultrapar.results.manifest import read_manifest
from pytest_ultrapar.results.run_summary import read_summary
from pytest_ultrapar.results.rundir import DEFAULT_PARENT, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ultrapar.records import Case
    from pytest_ultrapar.results.manifest import Manifest

MOST_RUNS = 20
"""Newest runs that are looked at: 20 of 560 cases take 0.05 s."""

ENOUGH = 0.9
"""Share of the cases of the best run from which a newer one is preferred to it."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The run that a plan stands on.

    Attributes:
        directory: Of the run; absolute.
        n_looked_at: Runs among which it was chosen.
    """

    directory: Path
    n_looked_at: int


def choose_run(
    cases: Sequence[Case],
    silent_models: Callable[[Manifest], frozenset[str] | None],
    *,
    parent: Path = DEFAULT_PARENT,
) -> Chosen | None:
    """The newest run that covers most of the cases; None where none covers any.

    A run covers a case by the same case or one of the same test function and model, and counts
    with the share of its cases that were graded: one that was interrupted says little. Only
    manifests, planned cases and summaries are read.

    Args:
        cases: Those to be planned.
        silent_models: Models of which a run of that manifest says nothing; None: it says nothing
            of any.
        parent: Where runs lie, or directories of several runs; its `latest` may point elsewhere.
    """
    found = []
    newest = _newest(parent)
    for directory in newest:
        try:
            covered = _covered(directory, cases, silent_models)
        except ResultsError:
            continue
        found.append((covered, directory))
    most = max((covered for covered, _ in found), default=0.0)
    if most <= 0:
        return None
    directory = next(one for covered, one in found if covered >= ENOUGH * most)
    return Chosen(directory, len(newest))


def _newest(parent: Path) -> list[Path]:
    """Directories of runs, each once, the newest first."""
    began: dict[Path, float] = {}
    for manifest in (
        parent / LATEST / MANIFEST,
        *parent.glob(f"*/{MANIFEST}"),
        *parent.glob(f"*/*/{MANIFEST}"),
    ):
        try:
            began[manifest.parent.resolve()] = manifest.stat().st_mtime
        except OSError:
            continue
    return sorted(began, key=began.__getitem__, reverse=True)[:MOST_RUNS]


def _covered(
    directory: Path,
    cases: Sequence[Case],
    silent_models: Callable[[Manifest], frozenset[str] | None],
) -> float:
    summary = read_summary(directory)
    silent = silent_models(read_manifest(directory))
    if silent is None or summary is None or not summary.statistics.n_planned:
        return 0.0
    if not any(directory.glob("results.*")):
        return 0.0
    then = [case for case in read_cases(directory) if case.model not in silent]
    ids = {case.case_id for case in then}
    tests = {(case.test, case.model) for case in then}
    n_same = sum(case.case_id in ids for case in cases)
    n_alike = sum((case.test, case.model) in tests for case in cases)
    share = summary.statistics.n_graded / summary.statistics.n_planned
    # The same case tells more than one that is like it.
    return share * (n_same + n_alike) / 2
