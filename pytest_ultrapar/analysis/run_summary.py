"""The summary of a run.

The compaction process sends it to the controller as one line of JSON.
"""

from __future__ import annotations

from collections import Counter
from math import fsum
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.performance import Performance
from pytest_ultrapar.analysis.repetitions import (
    cell_share,
    figures_of_cells,
    mean_interval_of,
    n_repetitions,
    share_of,
    share_of_alone,
)
from pytest_ultrapar.analysis.statistics import (
    MeanScore,
    RunStatistics,
    count_outcomes,
    mean_scores,
)
from pytest_ultrapar.analysis.table_layouts import shown_tests
from pytest_ultrapar.errors import bare_kind
from pytest_ultrapar.records import GRADED, RATED, Outcome, by_key
from pytest_ultrapar.store.cost import RoleUse, RunCost  # noqa: TC001 - as the next
from pytest_ultrapar.store.journal import Damage  # noqa: TC001 - msgspec reads annotations
from pytest_ultrapar.store.journal_history import CaseHistory
from pytest_ultrapar.store.manifest import Merged  # noqa: TC001 - as the last
from pytest_ultrapar.store.run_directory import SUMMARY_FILE
from pytest_ultrapar.system.files import read_whole, with_checksum, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.measures import Kind, Measures
    from pytest_ultrapar.analysis.repetitions import Repetition
    from pytest_ultrapar.records import Case


MOST_CELLS = 1_000
MOST_NOTES = 20
"""The maximum number of individual cases that are listed at the end of a run. More would not fit on
a screen; readers who need more should use the tables."""


class Cell(msgspec.Struct, frozen=True):
    """The cases that have the same values for the names in `summary_by`.

    Attributes:
        names: These values, in the order of `RunSummary.summary_by`.
        n: How many of these cases have a final grade.
        interval: The 95 % interval of the share of solved cases; None if unknown.
    """

    names: tuple[str, ...]
    n: int
    n_graded: int
    counts: dict[str, int]
    scores: dict[str, MeanScore]
    interval: tuple[float, float] | None = None

    @property
    def n_rated(self) -> int:
        """How many cases are graded, except those that are graded by scores alone."""
        return self.n_graded - self.counts.get("scored", 0)


class ResultsOfTest(msgspec.Struct, frozen=True):
    """The results of one test.

    Attributes:
        test: The test's name, which is unique in the run.
        by: The names, such as `model`, whose values label the rows and columns of its table.
        cells: The cells of the table: one for each combination of values of these names.
        wholes: The totals: a cell for each value of the first name. Empty if there is only one
            name.
    """

    test: str
    by: tuple[str, ...]
    cells: list[Cell]
    wholes: list[Cell] = []


class CellFigure(msgspec.Struct, frozen=True):
    """A figure that is computed from the repetitions of cells.

    Attributes:
        model: The model of the cells; empty for all models.
        figure: `pass@K`, `pass^K` or `majority`.
        n: How many cells are included.
        n_left_out: How many cells are left out because they have too few graded repetitions.
        value: The figure's value; None if `n` is 0.
        interval: The 95 % interval of the figure; None if unknown.
    """

    model: str
    figure: str
    n: int
    n_left_out: int
    value: float | None
    interval: tuple[float, float] | None = None


class WholeFigure(msgspec.Struct, frozen=True):
    """A figure that the suite computed from all rows.

    Attributes:
        interval: The 95 % interval of the figure; None if unknown.
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None


class CaseNote(msgspec.Struct, frozen=True):
    """A case that was not measured, and the reason for this."""

    nodeid: str
    outcome: Outcome
    kind: str | None
    error: str | None


class RunSummary(Performance, frozen=True, kw_only=True):
    """All figures of a run: its performance, and the outcomes of its cases.

    Attributes:
        resumed: Whether a part of the run took place in an earlier session. Only the scores include
            that part.
        measured_earlier: Whether the figures for speed and limits are from an earlier session,
            because the last session had nothing left to run.
        regraded: The id of the run whose episodes were graded again. The speed and the requests are
            from that run. None if nothing was graded again.
        replayed: The id of the run whose answers were replayed; the speed is then unknown. None if
            nothing was replayed.
        n_replayed: How many answers were replayed, including answers in ungraded episodes.
        n_ambiguous: For how many replayed answers the request matched several different stored
            answers; the first of them was used.
        n_resumed: How many interrupted conversations continued from their stored answers.
        n_strayed: How many other interrupted conversations sent a request that differs from the
            stored one. They got new answers from that request on.
        asked_by_others: Whether the cases are requests from a gateway's clients.
        n_requests: How many requests the run sent, including requests of ungraded episodes.
        n_without_request: How many graded cases sent no request through `llm`, not even to a role.
            The run cannot know of requests that were sent by other means.
        n_maybe_billed: How many requests without an answer may have been billed.
        kinds: How many cases ended with each kind of `infra`, `error` or refused prompt. The keys
            have the form `outcome/kind`.
        notes: The first `MOST_NOTES` cases with the outcome `error` or `infra`; those with `error`
            come first.
        never_ran: The node ids of the first `MOST_NOTES` planned cases that have neither an episode
            nor a grade.
        n_ungraded: How many planned cases have a finished episode but no grade. If the run is
            resumed, they are only graded.
        n_interrupted: How many planned cases have an unfinished episode, but no finished one and no
            grade.
        damage: The parts of the journal that could not be read.
        files: The names of the files that were written to the run directory.
        cost: The cost of all requests; None if no price is known.
        n_repetitions: The largest number of repetitions in any cell; only cases with a final grade
            are counted.
        repetitions: The figures over the cells of each model and of all models; empty if no cell
            has repetitions.
        roles: The requests to each role.
        merged: The parts of a merged run; None for other runs.
        drawn_from: How many cases the sample was drawn from; 0 if the run is not a sample.
        digests: The SHA-256 of each table in hexadecimal, by file name.
        tests: The results of each test, in the order of collection. Once they have `MOST_CELLS`
            cells in total, further tests are left out.
        n_tests: How many tests have results.
        figures: The figures that the suite computed from all rows (`pytest_ultrapar_figures`).
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
    asked_by_others: bool = False
    regraded: str | None = None
    replayed: str | None = None
    n_replayed: int = 0
    n_ambiguous: int = 0
    n_resumed: int = 0
    n_strayed: int = 0
    n_maybe_billed: int = 0
    n_without_request: int = 0
    n_ungraded: int = 0
    n_interrupted: int = 0
    cost: RunCost | None = None
    n_repetitions: int = 1
    repetitions: tuple[CellFigure, ...] = ()
    roles: dict[str, RoleUse] = msgspec.field(default_factory=dict)
    merged: Merged | None = None
    drawn_from: int = 0
    digests: dict[str, str] = msgspec.field(default_factory=dict)
    tests: list[ResultsOfTest] = msgspec.field(default_factory=list)
    n_tests: int = 0
    figures: list[WholeFigure] = msgspec.field(default_factory=list)

    @property
    def session(self) -> str:
        """The session that measured speed and limits, as a phrase; empty if there was only one."""
        if self.regraded is not None:
            return f" (run {self.regraded})"
        if not self.resumed:
            return ""
        return " (earlier session)" if self.measured_earlier else " (this session)"

    @property
    def n_without_grade(self) -> int:
        """How many planned cases have no final grade."""
        return self.statistics.n_planned - self.statistics.n_final

    @property
    def n_never_ran(self) -> int:
        """How many planned cases have neither an episode nor a grade."""
        return self.n_without_grade - self.n_ungraded - self.n_interrupted

    def n_infra(self, kind: str) -> int:
        """Count the `infra` cases of this kind, including those for which a role was the cause."""
        told = ((name.partition("/"), n) for name, n in self.kinds.items())
        return sum(n for (word, _, its), n in told if (word, bare_kind(its)) == ("infra", kind))


def read_summary(run_dir: Path) -> RunSummary | None:
    """Read the summary of a run; None if there is no summary yet.

    Raises:
        ResultsError: The file cannot be read, or is from another version.
    """
    return read_whole(run_dir / SUMMARY_FILE, RunSummary, None, "is not a summary of this version")


def write_summary(run_dir: Path, summary: RunSummary) -> None:
    """Replace the summary of a run, as a whole or not at all.

    Raises:
        ResultsError: The summary cannot be written.
    """
    write_whole(run_dir / SUMMARY_FILE, with_checksum(msgspec.json.encode(summary) + b"\n"))


def results_of_tests(
    measures: Measures, layouts: Mapping[str, tuple[str, ...]]
) -> tuple[list[ResultsOfTest], int]:
    """Return the results of each test, as in `RunSummary`, and how many tests have results."""
    parts = measures.grouped(lambda kind: kind.own[0])
    names = shown_tests(layouts)
    found: list[ResultsOfTest] = []
    room = MOST_CELLS
    for test, by in layouts.items():
        if test in parts and room > 0:
            cells = make_cells(parts[test], lambda kind: kind.own[1:])
            wholes = make_cells(parts[test], lambda kind: kind.own[1:2]) if len(by) > 1 else []
            found.append(ResultsOfTest(names[test], by, cells, wholes))
            room -= len(cells) + len(wholes)
    return found, len(parts)


def all_of(cells: Sequence[Cell], *names: str) -> Cell:
    """Add up cells. The sum of several cells has no interval, because the cells may share tasks."""
    if len(cells) == 1:
        return msgspec.structs.replace(cells[0], names=names)
    counts, sums = Counter[str](), by_key(pair for cell in cells for pair in cell.scores.items())
    for cell in cells:
        counts.update(cell.counts)
    scores = {
        name: MeanScore(fsum(one.mean * (one.n / n) for one in own), n)
        for name, own in sums.items()
        if (n := sum(one.n for one in own))
    }
    n, n_graded = sum(cell.n for cell in cells), sum(cell.n_graded for cell in cells)
    return Cell(names, n, n_graded, dict(counts), scores)


def make_cells(
    measures: Measures, key: Callable[[Kind], tuple[str, ...]] = lambda kind: kind.names
) -> list[Cell]:
    """Make a cell for each combination of values that occurs; sort the cells by these values."""
    cells = []
    for names, part in sorted(measures.grouped(key).items()):
        counts = count_outcomes(part)
        n = sum(counts[outcome] for outcome in GRADED)
        share = share_of_alone(counts["solved"], sum(counts[outcome] for outcome in RATED))
        if _depends(part):
            rated = [*part.of(part.told(lambda kind: kind.outcome in RATED)).repeated()]
            share = share_of(rated, [each.outcome == "solved" for each in rated])
        interval = (share.low, share.high) if share is not None else None
        scores = mean_scores(part, _interval_of_mean)
        cells.append(Cell(names, len(part), n, counts, scores, interval))
    return cells


def _depends(part: Measures) -> bool:
    """Whether the cases may depend on each other. If not, an interval needs less memory.

    For a million cases, this saves 250 MB.
    """
    return any(kind.cell or kind.cluster for kind in part.kinds)


def _interval_of_mean(
    parts: Sequence[Measures], values: Sequence[float]
) -> tuple[float, float] | None:
    rows = [row for one in parts if _depends(one) for row in one.repeated()]
    low, high = mean_interval_of(rows, values).known
    return None if low is None or high is None else (low, high)


def make_cell_figures(measures: Measures) -> tuple[CellFigure, ...]:
    """Return figures over the cells of each model and of all models; empty without repetitions.

    Figures of all models together have no interval, because cells of different models may share
    tasks.
    """
    figures = figures_of_cells(n_repetitions(measures.cells()))
    if not figures or not any(kind.outcome in RATED for kind in measures.kinds):
        return ()
    rows = [*measures.repeated()]
    by_model = {
        model: [*own.repeated()]
        for model, own in sorted(measures.grouped(lambda kind: kind.model).items())
    }
    found = []
    for figure in figures:
        found += [cell_figure(model, figure, own) for model, own in by_model.items()]
        if len(by_model) > 1:
            everything = cell_figure("", figure, rows)
            found.append(msgspec.structs.replace(everything, interval=None))
    return tuple(found)


def cell_figure(model: str, figure: str, rows: Sequence[Repetition]) -> CellFigure:
    """Compute a figure over some cells.

    Args:
        model: The model's name, or empty.
        figure: The same as for `cell_share`.
        rows: All repetitions that have a final grade.
    """
    share = cell_share(figure, rows)
    if share is None:
        return CellFigure(model, figure, 0, len({each.cell or each.case_id for each in rows}), None)
    low, high = share.interval.known
    bounds = (low, high) if low is not None and high is not None else None
    return CellFigure(model, figure, share.n, share.n_left_out, share.value, bounds)


class Ends:
    """Counts, slice by slice, how the cases of a run ended.

    Attributes:
        kinds: The same as in `RunSummary`, like all other attributes.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.notes: list[CaseNote] = []
        self.never_ran: list[str] = []
        self.n_ungraded = 0
        self.n_interrupted = 0

    def add(self, cases: Iterable[Case], histories: Mapping[str, CaseHistory]) -> None:
        """Count some more cases, given in the planned order, with their histories."""
        notes = [*self.notes]
        nothing = CaseHistory()
        for case in cases:
            found = histories.get(case.case_id, nothing)
            if (grade := found.grade) is not None:
                if grade.kind:
                    self.kinds[f"{grade.outcome}/{grade.kind}"] += 1
                if grade.outcome in {"error", "infra"}:
                    notes.append(CaseNote(case.nodeid, grade.outcome, grade.kind, grade.error))
            elif not found.had_episode:
                if len(self.never_ran) < MOST_NOTES:
                    self.never_ran.append(case.nodeid)
            elif found.finished:
                self.n_ungraded += 1
            else:
                self.n_interrupted += 1
        self.notes = sorted(notes, key=lambda note: note.outcome != "error")[:MOST_NOTES]
