"""How many requests per second a provider bears: the search for its limit on a rate."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED
from pytest_ultrapar.broker.adaptive.seats import Curve, span_s

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


SHORT_S, LONG_S, MINUTE_S, LONGEST_S = 2.0, 10.0, 60.0, 180.0
LEAST_S = 1.0
"""What was let in during less than a second may have been a burst."""
ENOUGH, LEAST_FLOW = 10, 2.0
"""So many in the long span tell the rate; so many per second can be cut off by a storm."""


class AcceptedRate:
    """Sends that were not refused, counted by the second. Pure.

    Attributes:
        was_any_served: Whether the provider has served anything yet: before that nobody knows of
            any send that it was let in.
    """

    def __init__(self) -> None:
        self._counts: deque[tuple[int, float]] = deque()
        self._first_s: float | None = None
        self.was_any_served = False

    def sent(self, now_s: float) -> None:
        """Count a send."""
        second = int(now_s)
        if self._first_s is None:
            self._first_s = now_s
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1] = second, self._counts[-1][1] + 1
            return
        self._counts.append((second, 1))
        while self._counts[0][0] < second - LONGEST_S:
            self._counts.popleft()

    def sent_before(self, n: int, since_s: float, n_now: float, now_s: float) -> None:
        """Count sends that went before anybody counted, as if they had been spread evenly.

        Args:
            n: How many, those of them included that will be refused.
            since_s: When the first of them went.
            n_now: How many in this second: after a quiet time, most of what tells the rate.
            now_s: Now.
        """
        self._first_s = since_s
        seconds = range(max(int(since_s), int(now_s - LONGEST_S)), int(now_s))
        each = (n - n_now) / max(len(seconds) + 1, now_s - since_s)
        self._counts = deque([*((one, each) for one in seconds), (int(now_s), each + n_now)])

    def refused(self, sent_s: float) -> None:
        """Take a send back."""
        second = int(sent_s)
        for i in range(len(self._counts) - 1, -1, -1):
            at, count = self._counts[i]
            if at <= second:
                if at == second:
                    self._counts[i] = at, count - 1
                return

    def is_known(self, now_s: float) -> bool:
        """Whether sends were counted for long enough to tell a rate, and some were let in."""
        if self._first_s is None or not self.was_any_served:
            return False
        return now_s - self._first_s >= LEAST_S and self._within(now_s, LONGEST_S) >= 1.0

    def is_quiet(self, now_s: float) -> bool:
        """Whether next to nothing was let in lately."""
        return self._within(now_s, LONG_S) < ENOUGH

    def is_flow(self, now_s: float) -> bool:
        """Whether so many were let in lately that it means something when none is."""
        return self.is_known(now_s) and self._mean(now_s, SHORT_S) >= LEAST_FLOW

    def per_s(self, now_s: float) -> float:
        """Sends per second: the better of the last two and the last ten seconds.

        The short span keeps up with growth, the long one is not lowered by a pause; where even that
        has few sends, the last minutes are asked: a provider that counts by the minute lets all of
        them in at its beginning, and then none.
        """
        if self._first_s is None:
            return 0.0
        if self.is_quiet(now_s):
            return max(self._mean(now_s, MINUTE_S), self._mean(now_s, LONGEST_S))
        return max(self._mean(now_s, SHORT_S), self._mean(now_s, LONG_S))

    def _mean(self, now_s: float, span_s: float) -> float:
        assert self._first_s is not None
        known_s = now_s - max(self._first_s, _begin_s(now_s, span_s))
        return self._within(now_s, span_s) / max(1.0, known_s)

    def _within(self, now_s: float, span_s: float) -> float:
        begin_s = _begin_s(now_s, span_s)
        return sum(count for second, count in self._counts if second >= begin_s)


def _begin_s(now_s: float, span_s: float) -> int:
    """The first whole second within a span: sends are counted by those."""
    return int(now_s - span_s) + 1


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


LEAST_IN_STORM = 0.5
"""Sends per second while it is not known whether all that is refused is a storm."""


class PaceSearch:
    """AIMD on the rate of sends, in epochs as `SeatSearch`. Pure.

    Without a bound until the first cut, which goes to what was accepted lately.

    Attributes:
        rate: Sends per second; infinity while nothing bounds them.
    """

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
            # A rate that nobody uses is not shown to be borne.
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

    def refused(self, seen: Observation, *, is_serving: bool, is_brief: bool = False) -> bool:
        """Cut, once per epoch.

        Args:
            seen: The refusal.
            is_brief: Whether it may be of a storm, whose end is to be seen soon.
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
            # All that is known is what was let in lately.
            low = min(self.rate, accepted)
            target = min(self.rate, FIRST_TARGET * accepted)
        elif self._curve.is_over(seen.now_s):
            # What was tried beyond the aim is too much; the aim itself may still hold.
            target = min(self.rate, max(CUT * self.rate, self._curve.target))
            low = CUT * target
        else:
            # Refused on the way back up: there is no use in aiming higher than this.
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
        if is_brief:
            low = max(low, min(self.rate, LEAST_IN_STORM))
        self.rate = min(self._ceiling, max(LOWEST, low))
        target = max(self.rate, target)
        over_s = max(FIRST_SPAN_S, 5.0 / self.rate) if is_first else span_s(self.rate)
        self._curve = Curve(self.rate, target, seen.now_s, over_s)
        self._cut_s = seen.now_s
        self._step = 0.0
        return True
