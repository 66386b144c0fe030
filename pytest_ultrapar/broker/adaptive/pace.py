"""The search for a provider's rate limit: how many requests per second it accepts."""

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
"""If all accepted sends were made in less than this many seconds, they may have been a burst."""
ENOUGH, LEAST_FLOW = 10, 2.0
"""`ENOUGH` accepted sends within `LONG_S` are enough to show a rate. If the rate was at least
`LEAST_FLOW` per second, a sudden stop may be a storm, in which all requests are refused."""


class AcceptedRate:
    """Counts, for each second, the sends that were not refused. Does no I/O.

    Attributes:
        was_any_served: Whether the provider has served a request yet. Before that, it is unknown
            whether any send was accepted.
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
        """Count the sends from before the search, as if they had been spread evenly.

        Args:
            n: The number of sends, including sends that may still be refused.
            since_s: When the first of them was sent.
            n_now: How many of them were sent in the current second. After a quiet time these are
                most of the evidence.
            now_s: The current time.
        """
        self._first_s = since_s
        seconds = range(max(int(since_s), int(now_s - LONGEST_S)), int(now_s))
        each = (n - n_now) / max(len(seconds) + 1, now_s - since_s)
        self._counts = deque([*((one, each) for one in seconds), (int(now_s), each + n_now)])

    def refused(self, sent_s: float) -> None:
        """Stop counting a send, because it was refused."""
        second = int(sent_s)
        for i in range(len(self._counts) - 1, -1, -1):
            at, count = self._counts[i]
            if at <= second:
                if at == second:
                    self._counts[i] = at, count - 1
                return

    def is_known(self, now_s: float) -> bool:
        """Whether sends were counted for long enough to show a rate, and some were accepted."""
        if self._first_s is None or not self.was_any_served:
            return False
        return now_s - self._first_s >= LEAST_S and self._within(now_s, LONGEST_S) >= 1.0

    def is_quiet(self, now_s: float) -> bool:
        """Whether almost no sends were accepted recently."""
        return self._within(now_s, LONG_S) < ENOUGH

    def is_flow(self, now_s: float) -> bool:
        """Whether enough sends were accepted recently for a sudden stop to be significant."""
        return self.is_known(now_s) and self._mean(now_s, SHORT_S) >= LEAST_FLOW

    def per_s(self, now_s: float) -> float:
        """The accepted sends per second: the higher of the rates over the last 2 s and 10 s.

        The rate over the short span follows growth, and the rate over the long span falls only
        slowly during a pause. If even the long span contains few sends, the rate over the last
        minutes is used, because the provider may count per minute. Such a provider accepts sends at
        the start of a minute and then refuses the rest.
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
    """The first whole second in a span. Sends are counted per whole second."""
    return int(now_s - span_s) + 1


CUT = 0.95
LOWEST = 1 / 60.0
FIRST_STEP = 0.02
SETTLES_S = 1.0
"""Providers count a rate over a second or more. So if a request is sent within this many seconds
after a cut and is refused, the refusal shows nothing new."""
STEP_S = 1.0
"""The step by which the rate grows doubles after this many seconds without refusals. If five sends
take longer, it doubles after that time."""
FIRST_TARGET, FIRST_SPAN_S = 1.1, 2.0
"""The first cut sets the rate to the accepted rate, which is too low if there were pauses. The
accepted rate is only a guess, so the rate soon grows beyond it if there are no refusals."""


LEAST_IN_STORM = 0.5
"""Refusals that may be due to a storm do not lower the rate below this many sends per second."""


class PaceSearch:
    """Controls the rate of sends with AIMD, in epochs as in `SeatSearch`. Does no I/O.

    The rate is unbounded until the provider states a rate, or until the first cut sets it to the
    recently accepted rate.

    Attributes:
        rate: Sends per second; infinity while it is unbounded.
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
        """Whether the rate is bounded."""
        return not math.isinf(self.rate)

    @property
    def held(self) -> float | None:
        """The accepted rate in sends per second, without tries above it; None if unbounded."""
        if self._curve is not None:
            return min(self._curve.target, self._ceiling)
        return None if math.isinf(self.rate) else self.rate

    @property
    def settles_s(self) -> float:
        """The time from which requests show whether the rate set by the last cut is right."""
        return self._cut_s + SETTLES_S

    def state(self, rate: float) -> None:
        """Set the ceiling to the rate that the provider states."""
        self._ceiling = max(LOWEST, rate)
        # If there are no refusals, the provider's statement is the only evidence.
        self.rate = self._ceiling if self._curve is None else min(self.rate, self._ceiling)

    def served(self, seen: Observation) -> bool:
        """Raise the rate if sends are nearly as fast as it allows.

        Returns:
            Whether the rate has changed.
        """
        if self._curve is None or seen.granted_s < self._cut_s:
            return False
        if self.accepted.per_s(seen.now_s) < SATURATED * self.rate:
            # A success at a lower rate does not show that this rate is accepted.
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
        """Lower the rate, but only once per epoch.

        Args:
            seen: The refusal.
            is_serving: Whether any request was served since the last cut. If not, this is a storm,
                and a storm does not show how far to lower the rate.
            is_brief: Whether the refusal may belong to a storm that ends soon.

        Returns:
            Whether this refusal began a new epoch.
        """
        if seen.granted_s < self.settles_s:
            return False
        accepted = self.accepted.per_s(seen.now_s)
        is_first = self._curve is None
        if self._curve is None:
            # The recently accepted rate is the only evidence.
            low = min(self.rate, accepted)
            target = min(self.rate, FIRST_TARGET * accepted)
        elif self._curve.is_over(seen.now_s):
            # The try above the target was too high, but the target itself may still be right.
            target = min(self.rate, max(CUT * self.rate, self._curve.target))
            low = CUT * target
        else:
            # The request was refused while the rate was returning to the target: do not go higher.
            target = self.rate
            low = CUT * target
        if is_serving and not is_first:
            # A limit above the actual rate has no effect, and lowering it step by step is slow.
            target = min(target, accepted / SATURATED)
            low = min(low, target)
        if seen.is_alone and accepted > 0 and self.accepted.is_quiet(seen.now_s):
            # Even single requests were refused for a while: do not expect more than in the last
            # minutes.
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
