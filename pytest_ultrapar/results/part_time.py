"""What some of a run's cases took of its time: one rule for every figure of a suite or model; pure.

Of the whole run it is the makespan. Of a part it is the part's share. How long a model took is its
own time, whatever other models had under way: so every moment is divided among the episodes of the
part's models alone, and one at which only other models have episodes under way costs it nothing. A
pause of the whole run belongs to what begins next. By that, suites of the same models add up to the
whole, and so do models that take turns; a model that is alone takes as long as one that waits for
its turn, so a figure does not change with what else was selected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


def part_time(run: Iterable[CaseMeasure], chosen: Callable[[CaseMeasure], bool]) -> PartTime | None:
    """The time of some cases of a run; None where none of them was completed in what is measured.

    Args:
        run: All graded cases of the run.
        chosen: Which of them.
    """
    ran = [(each, each.span) for each in run if each.span is not None]
    models = {each.model for each, _ in ran if chosen(each)}
    own = [(each, span) for each, span in ran if each.model in models]
    spans = [span for _, span in own]
    beside = [span for each, span in ran if each.model not in models]
    shares = [
        (each, share_s)
        for (each, _), share_s in zip(own, makespan_shares(spans, beside), strict=True)
        if chosen(each)
    ]
    if not any(each.timed for each, _ in shares):
        return None
    if len(shares) == len(ran):
        # The makespan itself: what shares add up to may differ in the last digit.
        seconds = max(span.end_s for span in spans) - min(span.first_send_s for span in spans)
    else:
        seconds = sum(share_s for _, share_s in shares)
    return PartTime(shares, max(seconds, RESOLUTION_S))
