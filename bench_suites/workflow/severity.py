"""The severity of a flaw: how much of a plan it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.workflow.task_values import Draw

_T = TypeVar("_T")

Severity = Literal["light", "medium", "severe"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def n_touched(n_steps: int, severity: Severity) -> int:
    """The number of steps that a flaw changes: one, up to two, or more than half."""
    counts = {"light": 1, "medium": 2, "severe": n_steps // 2 + 1}
    return min(counts[severity], n_steps)


def n_described(n_steps: int, severity: Severity) -> int:
    """The number of steps that a flaw of descriptions changes: one, up to two, or all."""
    counts = {"light": 1, "medium": 2, "severe": n_steps}
    return min(counts[severity], n_steps)


def some_of(choices: Sequence[_T], n: int, draw: Draw) -> list[_T]:
    """Draw `n` different choices, in their order."""
    left = list(range(len(choices)))
    taken: set[int] = set()
    while len(taken) < n:
        index = draw.one_of(left)
        left.remove(index)
        taken.add(index)
    return [choices[index] for index in sorted(taken)]


def some_that_bite(choices: Sequence[_T], n: int, biting: Sequence[_T], draw: Draw) -> list[_T]:
    """Draw `n` different choices, in their order, at least one of which is in `biting`."""
    sure = draw.one_of(biting)
    others = some_of([choice for choice in choices if choice != sure], n - 1, draw)
    return [choice for choice in choices if choice == sure or choice in others]
