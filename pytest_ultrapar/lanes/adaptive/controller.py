"""One controller per limit: which of seats and rate a refusal was about, and what follows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.adaptive.history import LimitChange
from pytest_ultrapar.lanes.adaptive.pace import PaceSearch
from pytest_ultrapar.lanes.adaptive.seats import SeatSearch

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.adaptive.observation import Observation

_MOST_VOTES = 3
_RATE_VOTES = 2


class AdaptiveController:
    """Finds how many requests at once, and how many per second, a provider bears. Pure.

    A refusal may say itself what there was too much of. Where it does not, the numbers do: a
    provider that counts seats never refuses a request that makes fewer at once than it has just
    served; so such a refusal speaks for a limit on the rate, and one beyond that level for a limit
    on seats. The votes of the last few refusals decide.
    """

    __slots__ = ("_changes", "_level", "_name", "_votes", "pace", "seats")

    def __init__(self, name: str, ceiling: float = math.inf) -> None:
        """Start the search.

        Args:
            name: For the history.
            ceiling: Never more seats than this, >= 1.
        """
        self._name = name
        self.seats = SeatSearch(ceiling)
        self.pace = PaceSearch()
        self._votes = 0
        self._level = 0
        self._changes: list[LimitChange] = []

    def cap(self) -> float:
        """Seats allowed now."""
        return self.seats.seats

    def interval_s(self) -> float:
        """Seconds between sends; 0 when nothing bounds the rate."""
        return 1.0 / self.pace.rate

    def sent(self, now_s: float) -> None:
        """A lease was granted."""
        self.pace.accepted.sent(now_s)

    def observe(self, seen: Observation) -> None:
        """Take a returned lease into account; cap and interval may differ afterwards."""
        before = self.seats.seats, self.pace.rate
        reason = ""
        if seen.is_served:
            if seen.granted_s >= self.seats.cut_s:
                self._level = max(self._level, seen.at_grant)
            self.pace.served(seen)
            self.seats.served(seen)
            reason = "served"
        elif seen.is_limited:
            self.pace.accepted.refused(seen.granted_s)
            reason = self._refused(seen)
        if (self.seats.seats, self.pace.rate) != before:
            rate = None if math.isinf(self.pace.rate) else self.pace.rate
            self._changes.append(
                LimitChange(
                    self._name, seen.now_s, self.seats.seats, rate, seen.in_flight, reason
                )
            )

    def take_changes(self) -> list[LimitChange]:
        """The changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _refused(self, seen: Observation) -> str:
        exceeded = seen.told.exceeded
        if exceeded is None:
            is_rate = self._vote(seen)
        else:
            is_rate = exceeded != "in_flight"
        if is_rate:
            first = math.isinf(self.pace.rate)
            if self.pace.refused(seen) and first:
                self.seats.widen(2.0 * self._level, seen.now_s)
            return "refused: rate"
        if self.seats.refused(seen):
            self._level = 0
        return "refused: seats"

    def _vote(self, seen: Observation) -> bool:
        """Whether a refusal that does not say so is about the rate."""
        if self._level:
            step = 1 if seen.at_grant <= self._level else -1
            self._votes = max(-_MOST_VOTES, min(_MOST_VOTES, self._votes + step))
        return self._votes >= _RATE_VOTES
