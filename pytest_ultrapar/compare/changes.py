"""How the solved rate changed, for models and the values of each parameter; pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.equivalence import ALL_MODELS, Look, graded_pairs, rate_look
from pytest_ultrapar.analysis.statistics import cell_value
from pytest_ultrapar.pages.figures import MOST_VALUES
from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.analysis.measured_run import CaseRow
    from pytest_ultrapar.compare.pairing import Pairing


class ChangedDimension(msgspec.Struct, frozen=True):
    """Models by the values of one parameter; of all cases where its name is empty.

    Attributes:
        models: All together first, as `ALL_MODELS`, where there are several.
    """

    name: str
    values: list[str]
    models: list[str]
    looks: dict[str, Look]

    def look(self, model: str, value: str) -> Look | None:
        """The change of a model's cases with a value; None where no case was graded in both."""
        return self.looks.get(f"{model}\n{value}")


def changed_dimensions(pairing: Pairing) -> list[ChangedDimension]:
    """One for each parameter with 2 to `MOST_VALUES` values, and one for all cases.

    Each change and its interval are those of `rate_look`, and hold for themselves alone.
    """
    graded = graded_pairs(pairing.base_rows.values(), pairing.new_rows.values())
    cases = {case.case_id: case for case in pairing.cases}
    models = sorted({base.model for base, _ in graded})
    rows = [ALL_MODELS, *models] if len(models) > 1 else models
    found = []
    for name in dict.fromkeys(name for case in pairing.cases for name in case.params):
        value_of = {key: cell_value(case, name) for key, case in cases.items()}
        values = sorted({value_of[base.case_id] for base, _ in graded})
        if 1 < len(values) <= MOST_VALUES:
            found.append(_dimension(name, values, rows, graded, value_of))
    return [*found, _dimension("", [""], rows, graded, dict.fromkeys(cases, ""))]


def _dimension(
    name: str,
    values: list[str],
    models: list[str],
    graded: Iterable[tuple[CaseRow, CaseRow]],
    value_of: dict[str, str],
) -> ChangedDimension:
    own: dict[tuple[str, str], list[tuple[CaseRow, CaseRow]]] = defaultdict(list)
    for both in graded:
        value = value_of[both[0].case_id]
        for model in {both[0].model, models[0] if models[0] == ALL_MODELS else both[0].model}:
            own[model, value].append(both)
    return ChangedDimension(
        visible(name),
        [visible(value) for value in values],
        [visible(model) for model in models],
        {
            f"{visible(model)}\n{visible(value)}": rate_look(model, pairs)
            for (model, value), pairs in own.items()
        },
    )
