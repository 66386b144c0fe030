"""Compute how the solve rate changed for each model and parameter value.

If there is no solve rate, the first score is used instead. All functions are pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.equivalence import (
    ALL_MODELS,
    ComparedFigure,
    graded_pairs,
    looks_at,
    rate_look,
    rated_pairs,
)
from pytest_ultrapar.analysis.table_layouts import TEST, Uses
from pytest_ultrapar.records import Case, by_key
from pytest_ultrapar.report.pages.figures import compared_values, labels
from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.records import Scalar


class Grid(msgspec.Struct, frozen=True):
    """The dimensions of a table of changes: models, and parameters with their values as text.

    Attributes:
        models: The names of the models.
        values: The sorted values of each parameter that has 2 to `MOST_VALUES` values. Before these
            comes an entry with an empty name and one value, which all cases share.
    """

    models: list[str]
    values: dict[str, list[str]]

    @property
    def rows(self) -> list[str]:
        """The names of the models. If there are several, a row for all models comes first."""
        return [ALL_MODELS, *self.models] if len(self.models) > 1 else self.models

    @property
    def names(self) -> list[str]:
        """The unique names that tables show for the rows."""
        n_all = len(self.rows) - len(self.models)
        return [*["all models"] * n_all, *labels(self.models)]

    def at(self, case: Case) -> list[int | None]:
        """Return for each parameter the index of the case's value; None if that is missing."""
        return [
            values.index(text) if (text := _text(case, name)) is not None else None
            for name, values in self.values.items()
        ]


class ChangedDimension(msgspec.Struct, frozen=True):
    """A table of changes, by model and by the value of one parameter.

    Attributes:
        name: The parameter's name; empty for the entry with one value that all cases share.
        values: The unique names that tables show for the values.
        looks: For each row of the grid and each value, the change in the solve rate or, without a
            solve rate, in the first score. None if no case in this row with this value was
            graded in both runs.
    """

    name: str
    values: list[str]
    looks: list[list[ComparedFigure | None]]


def grid_of(pairing: Pairing) -> Grid:
    """Make the grid for the cases that two runs have in common."""
    cases = pairing.cases
    names = Uses({}, cases).dimensions(pairing.base.manifest.summary_by)
    known = ((name, [_value(case, name) for case in cases]) for name in names)
    values = {name: [str(one) for one in those] for name, those in compared_values(known).items()}
    return Grid(sorted({case.model for case in cases}), values)


def changed_dimensions(pairing: Pairing, grid: Grid) -> list[ChangedDimension]:
    """Compute the changes between two runs for each parameter in the grid.

    The intervals are not adjusted for the number of changes, so each interval is valid only for its
    own change.
    """
    graded = graded_pairs(pairing.base_rows.values(), pairing.new_rows.values())
    at = {case.case_id: grid.at(case) for case in pairing.cases}
    together = grid.rows[: len(grid.rows) - len(grid.models)]
    found = []
    for number, (name, values) in enumerate(grid.values.items()):
        own = by_key(
            ((model, at[both[0].case_id][number]), both)
            for both in graded
            for model in (*together, both[0].model)
        )
        looks = [
            [
                next(looks_at(model, own.get((model, place), ())), None)
                for place in range(len(values))
            ]
            for model in grid.rows
        ]
        shown = labels(values) if name else values
        found.append(ChangedDimension(visible(name), shown, looks))
    return found


def changed_tests(pairing: Pairing, *, by_id: bool) -> list[tuple[str, ComparedFigure]]:
    """Compute how the solve rate of each test changed, for all models together.

    The most certain change comes first.

    Args:
        pairing: The two runs.
        by_id: Whether to list each combination of a test's varying parameters separately.
    """
    values = defaultdict(set)
    for case in pairing.cases:
        for name, value in case.params.items():
            values[case.test, name].add(str(value))
    names = {}
    for case in pairing.cases:
        told = [str(one) for name, one in case.params.items() if len(values[case.test, name]) > 1]
        names[case.case_id] = case.test, f"[{', '.join(told)}]" if by_id else ""
    graded = graded_pairs(pairing.base_rows.values(), pairing.new_rows.values())
    found = by_key((names[both[0].case_id], both) for both in rated_pairs(graded))
    looks = [
        (f"{test.rpartition('/')[2]}{own_id}", rate_look(ALL_MODELS, pairs))
        for (test, own_id), pairs in found.items()
    ]
    return sorted(looks, key=lambda one: (one[1].chance, -abs(one[1].new - one[1].base), one[0]))


def _text(case: Case, name: str) -> str | None:
    if not name:
        return ""
    value = _value(case, name)
    return None if value is None else str(value)


def _value(case: Case, name: str) -> Scalar:
    return case.facts.get(name, case.test_name if name == TEST else None)
