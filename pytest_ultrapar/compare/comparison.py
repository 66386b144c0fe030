"""Compare finished runs with a baseline, and find changes larger than chance explains."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.equivalence import (
    ALL_MODELS,
    ComparedFigure,
    Equivalence,
    cell_look,
    equivalence,
    graded_pairs,
    looks_at,
    rate_look,
    rated_pairs,
)
from pytest_ultrapar.analysis.measured_run import read_rows
from pytest_ultrapar.analysis.paired import benjamini_hochberg
from pytest_ultrapar.analysis.repetitions import figures_of_cells, n_repetitions
from pytest_ultrapar.analysis.table_layouts import shown_tests
from pytest_ultrapar.compare.figures import Figure, NoFigureError, change
from pytest_ultrapar.compare.pairing import Pairing, pair, refuse_same
from pytest_ultrapar.compare.rules import FIGURE, Form, Rule
from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun

SPEED = (
    "throughput",
    "makespan",
    "latency.p50",
    "latency.p95",
    "latency.p99",
    "service",
    "speedup",
    "efficiency",
    "coverage",
    "tokens_in",
    "tokens_out",
    "cost",
)
"""The metrics in the rows of the report's speed table, in order. All changes are relative, except
for the change in coverage."""

CHANCE = 0.05
"""Among the cells that are reported as changed, at most this share is expected to have changed by
chance."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The cases from both runs that belong to one row in the baseline's summary.

    Attributes:
        names: The values in the row's first columns, such as the model.
        look: The change in the solve rate of these cases.
        chance: McNemar's p-value, adjusted for the number of cells (Benjamini and Hochberg).
    """

    names: tuple[str, ...]
    look: ComparedFigure
    chance: float

    @property
    def changed(self) -> bool:
        """Whether the change is larger than chance explains."""
        return self.chance <= CHANCE


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run compared with the baseline.

    Attributes:
        figures: The figures named in `SPEED` that both runs have.
        looks: The changes in the solve rate, in figures such as pass^k, and in scores, for each
            model and for all models together. The changes in the suite's own figures follow. The 95
            % intervals are not adjusted for the number of changes.
        answers: The verdict on whether the answers are the same.
        cells: The cells in which the solve rate changed. The most certain change comes first.
        n_cells: How many cells have a solve rate in both runs.
        tests: For each test, the changes in `looks`, without those in the suite's own figures.
            Empty if there is only one test.
    """

    pairing: Pairing
    figures: dict[str, Figure]
    looks: tuple[ComparedFigure, ...]
    answers: Equivalence
    cells: tuple[Cell, ...]
    n_cells: int
    tests: dict[str, list[ComparedFigure]]


def compare_runs(base: MeasuredRun, others: Sequence[MeasuredRun]) -> list[Comparison]:
    """Compare each run with the baseline.

    Raises:
        ConfigError: A run is the baseline itself, is named twice, cannot be read, or has no graded
            case in common with the baseline.
    """
    for i, run in enumerate(others):
        for earlier in (base, *others[:i]):
            refuse_same(earlier, run)
    base_rows = read_rows(base)
    return [_compare(pair(base, run, base_rows, read_rows(run))) for run in others]


def _compare(pairing: Pairing) -> Comparison:
    figures: dict[str, Figure] = {}
    for metric in SPEED:
        form: Form = "difference" if metric == "coverage" else "relative"
        with suppress(NoFigureError):
            figures[metric] = change(Rule(metric, metric, form=form), pairing)
    graded = graded_pairs(pairing.base_rows.values(), pairing.new_rows.values())
    cells = _cells(pairing, graded)
    names = shown_tests(case.test for case in pairing.cases)
    by_test = by_key(
        (names[case.test], (pairing.base_rows[case.case_id], pairing.new_rows[case.case_id]))
        for case in pairing.cases
    )
    return Comparison(
        pairing=pairing,
        figures=figures,
        looks=(
            *_looks([pair for own in by_test.values() for pair in own]),
            *_figure_looks(pairing),
        ),
        answers=equivalence(pairing.base_rows.values(), pairing.new_rows.values()),
        cells=tuple(
            sorted(
                (cell for cell in cells if cell.look.n_gained != cell.look.n_lost),
                key=lambda cell: (cell.chance, cell.names),
            )
        ),
        n_cells=len(cells),
        tests={test: _looks(own) for test, own in by_test.items() if len(by_test) > 1},
    )


def _looks(everything: list[tuple[CaseRow, CaseRow]]) -> list[ComparedFigure]:
    groups = by_key((both[0].model, both) for both in everything)
    groups = dict(sorted(groups.items()))
    if len(groups) > 1:
        groups[ALL_MODELS] = everything
    looks = []
    for model, own in groups.items():
        pairs = [(base, new) for base, new in own if base.graded and new.graded]
        if not pairs:
            continue
        n = n_repetitions(base.cell for base, _ in own)
        # Skip the first figure, pass@1, because it equals the solve rate.
        cell_looks = (cell_look(model, figure, own) for figure in figures_of_cells(n)[1:])
        looks += [*looks_at(model, pairs), *filter(None, cell_looks)]
    return looks


def _figure_looks(pairing: Pairing) -> Iterator[ComparedFigure]:
    """Yield the change, for whole runs, in each of the suite's own figures that both runs have."""
    for one in pairing.new.summary.figures:
        metric = f"{FIGURE}{one.name}"
        with suppress(NoFigureError):
            found = change(Rule(metric, metric, form="difference"), pairing)
            low, high = found.interval.known if found.interval is not None else (None, None)
            yield ComparedFigure(
                ALL_MODELS, metric, found.n, found.base or 0.0, found.new, low, high, 0.0
            )


def _cells(pairing: Pairing, graded: Sequence[tuple[CaseRow, CaseRow]]) -> list[Cell]:
    by = pairing.base.manifest.summary_by
    names_of = {case.case_id: tuple(case.value_of(name) for name in by) for case in pairing.cases}
    groups = by_key((names_of[both[0].case_id], both) for both in rated_pairs(graded))
    looks = {names: rate_look(ALL_MODELS, pairs) for names, pairs in sorted(groups.items())}
    chances = benjamini_hochberg(
        [look.chance if look.chance is not None else 1.0 for look in looks.values()]
    )
    return [
        Cell(names, look, chance)
        for (names, look), chance in zip(looks.items(), chances, strict=True)
    ]
