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


BLOCK, TELLING_CUTS, UNRELIEVED = 64, 6, 0.22
"""When limits have been cut so often, a block of so many requests tells: where so large a share is
still refused, it was not because of too many. Estimated limits leave 2 to 10 % refused, a quota by
the minute up to 18 % (`bench_suites/overhead/limit_play.py`)."""
SPAN_S, FAR_BELOW, STILL_REFUSED = 30.0, 0.25, 0.05
"""So is a smaller share where far fewer requests go now than were answered in the best such span: a
provider that could do that is not busy now."""


class InstanceState:
    """The lanes of an instance, one per key, when it last answered, and its retry budget.

    Attributes:
        answered_s: When a request on any of its lanes was last answered, monotonic seconds;
            -infinity before the first answer.
        started_s: When it was first sent a request; infinity before.
        is_broken: Whether its wordless 503s were found to have nothing to do with load, such as
            those of one broken server of several: then they are failures like any other.
    """

    __slots__ = (
        "_best_per_s",
        "_block_s",
        "_n_block",
        "_n_refused",
        "_n_span",
        "_span_s",
        "answered_s",
        "is_broken",
        "lanes",
        "retries",
        "started_s",
    )

    def __init__(self) -> None:
        self.answered_s = -math.inf
        self.started_s = math.inf
        self.lanes: list[LaneState] = []
        self.retries = RetryBudget()
        self.is_broken = False
        self._n_block = self._n_refused = self._n_span = 0
        self._block_s = self._span_s = self._best_per_s = 0.0

    def answered(self, now_s: float) -> None:
        """A request on one of its lanes was answered."""
        self.answered_s = now_s
        self.retries.answered(now_s)

    def has_answered(self) -> bool:
        """Whether any request on any of its lanes was answered."""
        return self.answered_s > -math.inf

    def is_answering(self, now_s: float) -> bool:
        """Whether it answered something in the last `ANSWERING_S` seconds, and can be congested."""
        return now_s - self.answered_s <= ANSWERING_S and not self.is_broken

    def is_starting(self, now_s: float) -> bool:
        """Whether it has answered nothing yet and may just not have had the time."""
        return (
            not self.has_answered() and not self.is_broken and now_s - self.started_s <= ANSWERING_S
        )

    def learn(self, n_cuts: int, now_s: float, *, is_refused: bool) -> bool:
        """Take a request into account that was answered, or refused without a word.

        Args:
            n_cuts: How often its limit has been cut.
            now_s: Now.
            is_refused: Which of the two.

        Returns:
            Whether it is now known that such refusals have nothing to do with load.
        """
        if now_s - self._span_s >= SPAN_S:
            if self._span_s:
                self._best_per_s = max(self._best_per_s, self._n_span / (now_s - self._span_s))
            self._span_s, self._n_span = now_s, 0
        self._n_span += not is_refused
        if n_cuts < TELLING_CUTS or self.is_broken:
            return False
        if self._n_block == 0:
            self._block_s = now_s
        self._n_block += 1
        self._n_refused += is_refused
        if self._n_block < BLOCK:
            return False
        share, per_s = self._n_refused / BLOCK, BLOCK / max(1e-9, now_s - self._block_s)
        is_far_below = per_s < FAR_BELOW * self._best_per_s
        self.is_broken = share >= UNRELIEVED or (share >= STILL_REFUSED and is_far_below)
        self._n_block = self._n_refused = 0
        return self.is_broken

    @property
    def is_out(self) -> bool:
        """Whether all its lanes are out: nothing is sent there any more."""
        return all(lane.is_out for lane in self.lanes)

    def n_requests(self) -> int:
        """Requests that it was sent, retries that draw on a budget left out.

        Summed up when asked, which happens only after a failure: a request that goes well pays
        nothing for it.
        """
        # What came back unsent is no request; retries that did so are subtracted twice, which
        # errs on the careful side.
        n = sum(
            lane.granted - lane.n_retries - lane.outcomes.get("unsent", 0) for lane in self.lanes
        )
        return max(0, n)
