"""Compute the cost of each model, its pass@k, and its comparison with the best model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_ultrapar.analysis.repetitions import cell_share, n_repetitions, solved_change
from pytest_ultrapar.report.pages.columns import floats, grouped, mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.analysis.repetitions import Repetition
    from pytest_ultrapar.report.pages.columns import Numbers

    Question = tuple[int, int]

_EACH_K = 10
"""Up to this k, pass@k is computed for each k; beyond it, only for 20, 50, 100 and so on, and for
the highest k."""


class ModelCost(msgspec.Struct, frozen=True):
    """How much the cases of a model cost, solved or not.

    Attributes:
        cost: The total cost of the model's cases with a known cost, in the run's currency.
        n_unknown: How many cases sent requests whose cost is unknown.
        n_solved: How many of the model's cases are solved, including cases with an unknown cost.
    """

    model: str
    cost: float
    n_unknown: int
    n_solved: int

    @property
    def per_solved(self) -> float | None:
        """`cost`, which includes unsolved cases, per solved case; None if no case is solved."""
        return self.cost / self.n_solved if self.n_solved else None


class ComparedWithBest(msgspec.Struct, frozen=True):
    """A comparison of a model with the best model, on the cases that are graded for both.

    Attributes:
        n: How many pairs of cases were compared.
        n_gained: How many cases only this model solved.
        n_lost: How many cases only the best model solved.
        low: The lower end of the 95 % interval of `difference`; None if all cases depend on each
            other.
        high: The upper end of this interval; None if `low` is None.
    """

    model: str
    n: int
    n_gained: int
    n_lost: int
    low: float | None
    high: float | None

    @property
    def difference(self) -> float:
        """This model's solve rate minus the best model's."""
        return (self.n_gained - self.n_lost) / self.n


class PassAt(msgspec.Struct, frozen=True):
    """pass@k: the probability that at least one of `k` repetitions of a cell is solved.

    Attributes:
        n: How many cells are included. These are the cells with at least `k` graded repetitions.
        value: The mean of this probability over these cells.
        low: The lower end of the 95 % interval; None if unknown.
        high: The upper end of this interval; None if `low` is None.
    """

    model: str
    k: int
    n: int
    value: float
    low: float | None
    high: float | None


def model_costs(
    results: Any,  # noqa: ANN401 - an Arrow table
    model_at: Numbers,
    shown: Mapping[str, str],
) -> list[ModelCost]:
    """Return the cost of each model's cases. Models without a known cost are left out.

    Args:
        results: Rows of `results`, with the column `cost`.
        model_at: For each row, the index of its model.
        shown: The page's name for each model.
    """
    cost = floats(results["cost"])
    is_unknown = np.isnan(cost)
    has_sent = floats(results["n_attempts"]) > 0
    is_solved = mask(results["outcome"], ["solved"])
    return [
        ModelCost(
            model,
            math.fsum(cost[own][~is_unknown[own]]),
            int((is_unknown & has_sent)[own].sum()),
            int(is_solved[own].sum()),
        )
        for model, own in zip(shown.values(), grouped(model_at, len(shown)), strict=True)
        if not is_unknown[own].all()
    ]


def passes(rows: Mapping[str, Sequence[Repetition]], shown: Mapping[str, str]) -> list[PassAt]:
    """Return the pass@k of each model for increasing k; empty if no cell was repeated.

    Args:
        rows: Each model's rows of results.
        shown: The page's name for each model.
    """
    found = []
    for model, own in sorted(rows.items()):
        n = n_repetitions(row.cell for row in own)
        for k in _ks(n) if n > 1 else ():
            share = cell_share(f"pass@{k}", own)
            if share is not None:
                low, high = share.interval.known
                found.append(PassAt(shown[model], k, share.n, share.value, low, high))
    return found


def compare_with_best(
    rows: Mapping[str, Sequence[Repetition]],
    questions: Mapping[str, Question],
    shown: Mapping[str, str],
) -> tuple[str, list[ComparedWithBest]]:
    """Find the model with the highest solve rate, and compare the others with it, closest first.

    Args:
        rows: Each model's graded rows of results. There must be at least one model.
        questions: The question of each case, by case id. The corresponding cases of two models have
            the same question.
        shown: The page's name for each model.
    """
    best = max(sorted(rows), key=lambda model: _solved_share(rows[model]))
    others = sorted(rows.keys() - {best})
    own = {questions[row.case_id]: row for row in rows[best]} if others else {}
    found = []
    for model in others:
        asked = {questions[row.case_id]: row for row in rows[model]}
        pairs = [(own[one], row) for one, row in asked.items() if one in own]
        if pairs:
            n_gained, n_lost, interval = solved_change(pairs)
            found.append(
                ComparedWithBest(shown[model], len(pairs), n_gained, n_lost, *interval.known)
            )
    return shown[best], sorted(found, key=lambda one: -one.difference)


def _solved_share(rows: Sequence[Repetition]) -> float:
    return sum(row.outcome == "solved" for row in rows) / len(rows)


def _ks(n: int) -> list[int]:
    steps = (m * 10**power for power in range(1, len(str(n)) + 1) for m in (2, 5, 10))
    return [*range(1, min(n, _EACH_K) + 1), *(k for k in steps if k < n), *([n] * (n > _EACH_K))]
