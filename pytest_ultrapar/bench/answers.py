"""Whether two runs of the same cases came to the same outcomes; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.graded import GRADED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.results.measure import CaseMeasure


class Agreement(NamedTuple):
    """Of the cases that both runs graded.

    Attributes:
        n: How many there are.
        differing: Ids of those with another outcome, in the order of the first run.
    """

    n: int
    differing: tuple[str, ...]


def agreement(base: Mapping[str, CaseMeasure], other: Mapping[str, CaseMeasure]) -> Agreement:
    """Compare the outcomes case by case; what was not graded in both says nothing."""
    both = [
        case_id
        for case_id, measure in base.items()
        if measure.outcome in GRADED and case_id in other and other[case_id].outcome in GRADED
    ]
    differing = (one for one in both if base[one].outcome != other[one].outcome)
    return Agreement(len(both), tuple(differing))
