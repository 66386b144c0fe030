"""What some of a run's cases took of its time: one rule for every figure of a suite or model; pure.

Of the whole run it is the makespan. Of a part it is the part's share: every moment is divided among
the episodes under way, so that suites on the same lanes, and models that take turns, add up to the
whole. Models that run side by side are different: how long a model took is its own makespan,
whatever else was under way. So a moment is divided only among episodes of the part's models, unless
the mode runs one case at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.plan.run_plan import ONE_AT_A_TIME
from pytest_ultrapar.results.speedup import makespan_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ultrapar.results.measure import CaseMeasure

RESOLUTION_S = 1e-6
"""No time is shorter than this."""


class PartTime(NamedTuple):
    """The time of some cases.

    Attributes:
        shares: Those that ran, each with its seconds of the makespan; also those that were not
            completed, since they took time, too.
        seconds: All of it; >= 1e-6.
    """

    shares: list[tuple[CaseMeasure, float]]
    seconds: float


def part_time(
    run: Iterable[CaseMeasure], chosen: Callable[[CaseMeasure], bool], *, mode: str
) -> PartTime | None:
    """The time of some cases of a run; None where none of them was completed in what is measured.

    Args:
        run: All graded cases of the run.
        chosen: Which of them.
        mode: The mode that ran.
    """
    ran = [each for each in run if each.span is not None]
    models = {each.model for each in ran if chosen(each)}
    beside = [
        (each, each.span)
        for each in ran
        if each.span is not None and (mode in ONE_AT_A_TIME or each.model in models)
    ]
    spans = [span for _, span in beside]
    shares = [
        (each, share_s)
        for (each, _), share_s in zip(beside, makespan_shares(spans), strict=True)
        if chosen(each)
    ]
    if not any(each.timed for each, _ in shares):
        return None
    if len(shares) == len(beside):
        # The makespan itself: what shares add up to may differ in the last digit.
        seconds = max(span.end_s for span in spans) - min(span.first_send_s for span in spans)
    else:
        seconds = sum(share_s for _, share_s in shares)
    return PartTime(shares, max(seconds, RESOLUTION_S))
