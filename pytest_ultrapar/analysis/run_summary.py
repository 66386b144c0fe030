"""What the controller learns from the compaction: small enough to be sent as one line of JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.paired import clustered_share
from pytest_ultrapar.analysis.performance import Performance
from pytest_ultrapar.analysis.statistics import (
    MeanScore,
    RunStatistics,
    count_outcomes,
    mean_scores,
)
from pytest_ultrapar.publish import read_whole
from pytest_ultrapar.records import GRADED, Outcome
from pytest_ultrapar.store.cost import RunCost  # noqa: TC001 - as the next
from pytest_ultrapar.store.journal import Damage  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_ultrapar.analysis.statistics import CaseMeasure
    from pytest_ultrapar.records import Case, Grade


SUMMARY_FILE = "summary.json"
"""Holds the `RunSummary` in the run's directory, for `ultrapar compare` and `ultrapar gate`."""
MOST_NOTES = 20
"""More than a screenful of single cases is for the tables, not for the end of a run."""


class Cell(msgspec.Struct, frozen=True):
    """The cases that agree in the names which the summary counts by.

    Attributes:
        names: Their values, in the order of `RunSummary.summary_by`.
        n: Cases with a final grade.
        interval: Bounds of the solved share of the graded cases at 95 %; None without one.
    """

    names: tuple[str, ...]
    n: int
    n_graded: int
    counts: dict[str, int]
    scores: dict[str, MeanScore]
    interval: tuple[float, float] | None = None


class CaseNote(msgspec.Struct, frozen=True):
    """One case that has no measurement, and why."""

    nodeid: str
    outcome: Outcome
    kind: str | None
    error: str | None


class RunSummary(Performance, frozen=True, kw_only=True):
    """The end of a run in numbers: its performance, and what became of its cases.

    Attributes:
        resumed: Whether part of it ran in an earlier session, which counts in the scores alone.
        measured_earlier: Whether speed and limits are those of an earlier session, because the last
            one had nothing left to run.
        regraded: Id of the run whose episodes were graded anew: speed and requests are its own.
        n_requests: All requests of the run, those of episodes that were not graded among them.
        n_without_request: Graded cases whose episode sent nothing through `llm`. What it sent by
            other means, if anything, nobody knows.
        n_maybe_billed: Those of them that brought no answer and may have been billed.
        kinds: How often each kind of `infra`, `error` and refused prompt came, as `outcome/kind`.
        notes: The first `MOST_NOTES` cases with outcome `error` or `infra`, errors first.
        never_ran: Node ids of the first `MOST_NOTES` planned cases of which no episode began and no
            grade was given.
        n_ungraded: Planned cases without a grade whose episode finished: resuming only grades them.
        n_interrupted: Planned cases without a grade whose episode began and did not finish.
        damage: Stretches of the journal that could not be read.
        files: Names of the files written, in the run directory.
        cost: Of all requests; None where no price is known.
    """

    run_id: str
    mode: str
    rate_mode: str
    simulated: bool
    statistics: RunStatistics
    summary_by: tuple[str, ...]
    cells: list[Cell]
    resumed: bool
    n_requests: int
    kinds: dict[str, int]
    notes: list[CaseNote]
    never_ran: list[str]
    damage: list[Damage]
    files: list[str]
    measured_earlier: bool = False
    regraded: str | None = None
    n_maybe_billed: int = 0
    n_without_request: int = 0
    n_ungraded: int = 0
    n_interrupted: int = 0
    cost: RunCost | None = None

    @property
    def session(self) -> str:
        """Which session speed and limits are of, as words to append; empty if there was one."""
        if self.regraded is not None:
            return f" of run {self.regraded}"
        if not self.resumed:
            return ""
        return " of an earlier session" if self.measured_earlier else " of this session"

    @property
    def n_without_grade(self) -> int:
        """Planned cases without a final grade."""
        return self.statistics.n_planned - self.statistics.n_final

    @property
    def n_never_ran(self) -> int:
        """Those of them of which no episode began."""
        return self.n_without_grade - self.n_ungraded - self.n_interrupted


def read_summary(run_dir: Path) -> RunSummary | None:
    """The summary of a run; None while there is none.

    Raises:
        ResultsError: It cannot be read, or is of another version.
    """
    return read_whole(run_dir / SUMMARY_FILE, RunSummary, None, "is no summary of this version")


def make_cells(measures: Iterable[CaseMeasure]) -> list[Cell]:
    """One cell for each combination of names that occurs, sorted by names."""
    by_names: dict[tuple[str, ...], list[CaseMeasure]] = {}
    for each in measures:
        by_names.setdefault(each.cell, []).append(each)
    cells = []
    for names, part in sorted(by_names.items()):
        counts = count_outcomes(part)
        n_graded = sum(counts[outcome] for outcome in GRADED)
        share = clustered_share(
            (each.cluster or each.case_id, each.outcome == "solved")
            for each in part
            if each.outcome in GRADED
        )
        interval = (share.low, share.high) if share is not None else None
        cells.append(Cell(names, len(part), n_graded, counts, mean_scores(part), interval))
    return cells


def count_kinds(grades: Iterable[Grade]) -> dict[str, int]:
    """How often each `outcome/kind` came, most frequent first."""
    kinds = Counter(f"{grade.outcome}/{grade.kind}" for grade in grades if grade.kind)
    return dict(kinds.most_common())


def make_notes(graded: Iterable[tuple[Case, Grade]]) -> list[CaseNote]:
    """Notes on the first cases without a measurement, errors before infra."""
    notes = [
        CaseNote(case.nodeid, grade.outcome, grade.kind, grade.error)
        for case, grade in graded
        if grade.outcome in {"error", "infra"}
    ]
    notes.sort(key=lambda note: note.outcome != "error")
    return notes[:MOST_NOTES]
