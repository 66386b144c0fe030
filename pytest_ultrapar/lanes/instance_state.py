"""One deployment or server while a run is on: what its lanes have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.retry_budget import RetryBudget

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.lane_state import LaneState

ANSWERING_S = 10.0
"""An instance that answered something so lately is at work. When it then refuses a request without
a word about when to come back, it is congested; an instance that is silent has failed."""


class InstanceState:
    """The lanes of an instance, one per key, when it last answered, and its retry budget.

    Attributes:
        answered_s: When a request on any of its lanes was last answered, monotonic seconds;
            -infinity before the first answer.
        started_s: When it was first sent a request; infinity before.
    """

    __slots__ = ("answered_s", "lanes", "retries", "started_s")

    def __init__(self) -> None:
        self.answered_s = -math.inf
        self.started_s = math.inf
        self.lanes: list[LaneState] = []
        self.retries = RetryBudget()

    def answered(self, now_s: float) -> None:
        """A request on one of its lanes was answered."""
        self.answered_s = now_s
        self.retries.answered(now_s)

    def has_answered(self) -> bool:
        """Whether any request on any of its lanes was answered."""
        return self.answered_s > -math.inf

    def is_answering(self, now_s: float) -> bool:
        """Whether it answered something in the last `ANSWERING_S` seconds."""
        return now_s - self.answered_s <= ANSWERING_S

    def is_starting(self, now_s: float) -> bool:
        """Whether it has answered nothing yet and may just not have had the time."""
        return not self.has_answered() and now_s - self.started_s <= ANSWERING_S

    @property
    def is_out(self) -> bool:
        """Whether all its lanes are out: nothing is sent there any more."""
        return all(lane.is_out for lane in self.lanes)

    def n_requests(self) -> int:
        """Requests that it was sent, retries left out.

        Summed up when asked, which happens only after a failure: a request that goes well pays
        nothing for it.
        """
        # What came back unsent is no request; retries that did so are subtracted twice, which
        # errs on the careful side.
        n = sum(
            lane.granted - lane.n_retries - lane.outcomes.get("unsent", 0) for lane in self.lanes
        )
        return max(0, n)
