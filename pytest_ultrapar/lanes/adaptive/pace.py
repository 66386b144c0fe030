"""How many requests per second a provider bears: the search for its limit on the rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.adaptive.accepted import AcceptedRate
from pytest_ultrapar.lanes.adaptive.curve import Curve, span_s
from pytest_ultrapar.lanes.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.adaptive.observation import Observation

CUT = 0.95
LOWEST = 1 / 60.0
FIRST_STEP = 0.02
SETTLES_S = 1.0
"""A rate is judged over a second or more: what is refused sooner after a cut is no news."""
STEP_S = 1.0
"""A clean second (or the time of five sends, where that is longer) doubles the step."""
FIRST_TARGET, FIRST_SPAN_S = 1.1, 2.0
"""The first cut goes to what was accepted, which pauses made too few: it is a guess, and soon left
behind where nothing is refused."""


class PaceSearch:
    """AIMD on the rate of sends, in epochs as `SeatSearch`. Pure.

    Without a bound until the first cut, which goes to what was accepted lately.

    Attributes:
        rate: Sends per second; infinity while nothing bounds them.
    """

    __slots__ = ("_ceiling", "_curve", "_cut_s", "_raised_s", "_step", "accepted", "rate")

    def __init__(self) -> None:
        self._ceiling = math.inf
        self.rate = math.inf
        self._curve: Curve | None = None
        self._cut_s = -math.inf
        self._raised_s = -math.inf
        self._step = 0.0
        self.accepted = AcceptedRate()

    @property
    def is_bounded(self) -> bool:
        """Whether anything bounds the rate."""
        return not math.isinf(self.rate)

    @property
    def held(self) -> float | None:
        """Sends per second that were borne, tries beyond left out; None where nothing bounds."""
        if self._curve is not None:
            return min(self._curve.target, self._ceiling)
        return None if math.isinf(self.rate) else self.rate

    @property
    def settles_s(self) -> float:
        """From when on a request tells something about the rate since the last cut."""
        return self._cut_s + SETTLES_S

    def state(self, rate: float) -> None:
        """Take over what the provider says of itself: never faster than that."""
        self._ceiling = max(LOWEST, rate)
        # Where nothing was ever refused, the provider's word is all there is to go by.
        self.rate = self._ceiling if self._curve is None else min(self.rate, self._ceiling)

    def served(self, seen: Observation) -> bool:
        """Grow where sends are as fast as they may be.

        Returns:
            Whether the rate has changed.
        """
        if self._curve is None or seen.granted_s < self._cut_s:
            return False
        if self.accepted.per_s(seen.now_s) < SATURATED * self.rate:
            return False
        before = self.rate
        if not self._curve.is_over(seen.now_s):
            self.rate = max(self.rate, self._curve.at(seen.now_s))
        elif seen.now_s - self._raised_s >= max(STEP_S, 5.0 / self.rate):
            self._step = self._step * 2.0 or FIRST_STEP * self.rate
            self._raised_s = seen.now_s
            self.rate += self._step
        self.rate = min(self._ceiling, self.rate)
        return self.rate != before

    def refused(self, seen: Observation, *, is_serving: bool) -> bool:
        """Cut, once per epoch.

        Args:
            seen: The refusal.
            is_serving: Whether anything was served since the last cut; else it is a storm, which
                says nothing of how far to go down.

        Returns:
            Whether this refusal began a new epoch.
        """
        if seen.granted_s < self.settles_s:
            return False
        accepted = self.accepted.per_s(seen.now_s)
        is_first = self._curve is None
        if self._curve is None:
            low = min(self.rate, accepted)
            target = min(self.rate, FIRST_TARGET * accepted)
        elif self._curve.is_over(seen.now_s):
            target = min(self.rate, max(CUT * self.rate, self._curve.target))
            low = CUT * target
        else:
            target = self.rate
            low = CUT * target
        if is_serving and not is_first:
            # A pace that was not reached bounds nothing, and one cut after the other is slow.
            target = min(target, accepted / SATURATED)
            low = min(low, target)
        if seen.is_lone and accepted > 0 and self.accepted.is_quiet(seen.now_s):
            # Not even one is let in, for a while: then there will be no more than there were in the
            # last minutes.
            low, target = min(low, accepted), min(target, FIRST_TARGET * accepted)
        self.rate = min(self._ceiling, max(LOWEST, low))
        target = max(self.rate, target)
        over_s = max(FIRST_SPAN_S, 5.0 / self.rate) if is_first else span_s(self.rate)
        self._curve = Curve(self.rate, target, seen.now_s, over_s)
        self._cut_s = seen.now_s
        self._step = 0.0
        return True
