"""One deployment or server while a run is on: what its lanes have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.failure_classes import ANSWERED
from pytest_ultrapar.lanes.retry_budget import FIXED, SHARE, RetryBudget

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.lane_state import LaneState


class InstanceState:
    """The lanes of an instance, one per key, and its retry budget.

    What it says of them is summed up when asked, which happens only after a failure: a request that
    goes well pays nothing for it.
    """

    __slots__ = ("_budget", "_name", "lanes")

    def __init__(self, name: str) -> None:
        self._name = name
        self._budget = RetryBudget()
        self.lanes: list[LaneState] = []

    def has_answered(self) -> bool:
        """Whether any request on any of its lanes was answered."""
        return any(not ANSWERED.isdisjoint(lane.outcomes) for lane in self.lanes)

    def draw_retry(self) -> str:
        """Take one retry from the budget.

        Returns:
            Why there is none, for people; empty when there was.
        """
        # What came back unsent is no request; retries that did so are subtracted twice, which
        # errs on the careful side.
        n_requests = sum(
            lane.granted - lane.n_retries - lane.outcomes.get("unsent", 0) for lane in self.lanes
        )
        if self._budget.draw(max(0, n_requests)):
            return ""
        return (
            f"the retry budget of instance {self._name} is used up: {self._budget.n_drawn} retries "
            f"for {n_requests} requests, of {FIXED} and {SHARE:.0%} that are allowed"
        )
