"""What each model costs, and how it does when it is asked again."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.analysis.repetitions import cell_share, n_repetitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.analysis.repetitions import Repetition

_EACH_K = 10
"""Up to here every k has a point, beyond it 20, 50, 100 and so on."""


class ModelCost(msgspec.Struct, frozen=True):
    """What the cases of a model cost, solved or not.

    Attributes:
        cost: Of its cases whose cost is known, in the run's currency.
        n_unknown: Cases that sent something whose cost is not known.
        n_solved: Of all its cases.
    """

    model: str
    cost: float
    n_unknown: int
    n_solved: int

    @property
    def per_solved(self) -> float | None:
        """What one solved case cost, failures paid for; None where none was solved."""
        return self.cost / self.n_solved if self.n_solved else None


class PassAt(msgspec.Struct, frozen=True):
    """How often one of `k` repetitions of a cell is solved.

    Attributes:
        n: Cells that it counts: those with at least `k` graded repetitions.
        value: Mean over these cells.
        low: Of the interval at 95 %; None where nothing is known of it.
    """

    model: str
    k: int
    n: int
    value: float
    low: float | None
    high: float | None


def model_costs(results: Iterable[dict[str, Any]], shown: Mapping[str, str]) -> list[ModelCost]:
    """What each model's cases cost; nothing where no cost is known.

    Args:
        results: Rows of the table, with `cost`.
        shown: How the page calls each model.
    """
    own: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in results:
        own[row["model"]].append(row)
    return [
        ModelCost(
            shown[model],
            math.fsum(row["cost"] for row in rows if row["cost"] is not None),
            sum(row["cost"] is None and bool(row["n_attempts"]) for row in rows),
            sum(row["outcome"] == "solved" for row in rows),
        )
        for model, rows in sorted(own.items())
        if any(row["cost"] is not None for row in rows)
    ]


def passes(rows: Mapping[str, Sequence[Repetition]], shown: Mapping[str, str]) -> list[PassAt]:
    """pass@k of each model, k rising; nothing where cells have no repetitions.

    Args:
        rows: The results of each model.
        shown: How the page calls each model.
    """
    found = []
    for model, own in sorted(rows.items()):
        n = n_repetitions(own)
        for k in _ks(n) if n > 1 else ():
            share = cell_share(f"pass@{k}", own)
            if share is not None:
                low, high = share.interval.known
                found.append(PassAt(shown[model], k, share.n, share.value, low, high))
    return found


def _ks(n: int) -> list[int]:
    steps = (m * 10**power for power in range(1, len(str(n)) + 1) for m in (2, 5, 10))
    return [*range(1, min(n, _EACH_K) + 1), *(k for k in steps if k < n), *([n] * (n > _EACH_K))]
