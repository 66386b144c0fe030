"""The search for a provider's limit on seats: how many requests in flight it accepts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


SPAN, SHORTEST_SPAN_S, SPAN_S = 15.0, 3.0, 15.0
"""The minimum time from a cut to the next try above the limit is `SPAN_S` seconds. If the cut
followed such a try, which confirmed the limit, the minimum is `SPAN` times the duration of an
answer. It is never less than `SHORTEST_SPAN_S` or more than `SPAN_S`."""
REQUESTS_PER_TRY = 80
"""The minimum number of requests between a cut and the next try. A try costs one or two refusals,
so refusals stay below 2.5 % of all requests even if the limit is low."""
PAUSES_PER_TRY, FIRST_PAUSES = 40, 0.3
"""A provider may ask for a pause when it refuses a try. The time to the next try includes
`PAUSES_PER_TRY` times this pause, so that these pauses also stay below 2.5 % of the time."""
LONGEST_SPAN_S = 300.0


class Curve:
    """How a limit grows again after it was cut from `target` to `low`.

    During the first `span_s` seconds, it follows the concave part of CUBIC: t seconds after the
    cut, the limit is target - (target - low) * (1 - t/span)^3. After half of the span it has
    covered seven eighths of the way. After the span it stays at `target`, and the search then tries
    higher values.

    Source: RFC 9438, section 4.2 (CUBIC). Here, the span K is given and not derived.
    """

    def __init__(self, low: float, target: float, cut_s: float, span_s: float) -> None:
        self.low = low
        self.target = target
        self.cut_s = cut_s
        self.span_s = span_s

    def at(self, now_s: float) -> float:
        """The value at `now_s`; `target` after the span."""
        left = 1.0 - (now_s - self.cut_s) / self.span_s
        if left <= 0.0:
            return self.target
        return self.target - (self.target - self.low) * min(left, 1.0) ** 3

    def is_over(self, now_s: float) -> bool:
        """Whether the span has passed, so that a try above the target is due."""
        return now_s - self.cut_s >= self.span_s


def span_s(requests_per_s: float, pause_s: float = 0.0, least_s: float = SPAN_S) -> float:
    """Seconds from a cut to the next try, given the request rate and the pause after a try."""
    wanted_s = REQUESTS_PER_TRY / max(requests_per_s, 1e-9) + PAUSES_PER_TRY * pause_s
    least_s = min(SPAN_S, max(SHORTEST_SPAN_S, least_s))
    return min(LONGEST_SPAN_S, max(least_s, wanted_s))


START = 10
CUT = 0.9
"""The factor of a cut. If a limit is cut to the fraction c and grows again, about (1 + c) / 2 of it
is used on average, so halving it would waste a quarter."""
DEEPEST_CUT = 0.5
"""The lowest factor of the first cut: when doubling exceeds the limit, half of the seats have
already been accepted."""
FIRST_STEP = 0.02
"""The size of the first step above a limit, as a fraction of the limit, but at least one seat."""


class SeatSearch:
    """A CUBIC window with epochs. Pure: the same observations give the same limits.

    The limit doubles with each round trip until the first refusal. Refusals count once per epoch
    (the time between two cuts): only a request granted after the last cut gives information about
    the limit since then. Without epochs, a burst of twenty refusals would cause twenty cuts, down
    to an eighth of the limit. With a fixed time between cuts, a limit that is far too high would
    cause refusals for too long.

    If the n-th request in flight is refused, the limit may be n - 1. After a time without refusals
    the limit is cut to that value, otherwise by a factor. After a cut the limit grows to a target
    along a `Curve`. After that, the search tries higher values. The first step above the old limit
    is small, and the step doubles after each round trip without refusals.

    If no request was served since the last cut, there is a storm or an outage. Refusals then give
    no information about the limit, and the curve returns to the old limit.

    Attributes:
        limit: The seats, from 1 to the ceiling. Fractions add up until they make a whole seat.
        ceiling: The maximum number of seats; infinity if unlimited.
        cut_s: When the last epoch began.
        service_s: The average duration of recent answers in seconds; 0 before the first.
        pause_s: The pause that the provider requested in the refusal that led to the last cut, in
            seconds; 0 if it requested none.
    """

    def __init__(self, ceiling: float, start: float = START) -> None:
        """Start the search.

        Args:
            ceiling: The maximum number of seats, >= 1; infinity if unlimited.
            start: The initial number of seats, >= 1. It is reduced to the ceiling if necessary.
        """
        self.ceiling = ceiling
        self.limit = float(min(start, ceiling))
        self._curve: Curve | None = None
        self.cut_s = -math.inf
        self._raised_s = -math.inf
        self._served_since_cut = False
        self._n_let_in = 0
        self.pause_s = 0.0
        self._is_steep = start > START
        self.service_s = 0.0
        self._clean = 0
        self._step = 0.0

    @property
    def held(self) -> int | None:
        """The accepted number of seats, without tries above it.

        None if no refusal has shown a limit.
        """
        return None if self._curve is None else max(1, int(self._curve.target + 1e-9))

    @property
    def settles_s(self) -> float:
        """The time from which requests show whether the limit set by the last cut is right."""
        return self.cut_s if self._served_since_cut else self.cut_s + 0.5 * self.service_s

    @property
    def seats(self) -> int:
        """The limit in whole seats, >= 1."""
        return max(1, int(self.limit + 1e-9))

    def served(self, seen: Observation, step: float = 1.0) -> bool:
        """Learn from a success.

        Args:
            seen: The success.
            step: How many seats a success adds before the first refusal. With 1, the limit doubles
                with each round trip.

        Returns:
            Whether the limit has changed.
        """
        took_s = seen.now_s - seen.granted_s
        self.service_s += 0.1 * (took_s - self.service_s) if self.service_s else took_s
        if is_new := seen.granted_s >= self.cut_s:
            self._served_since_cut = True
        elif self._curve is None and self.pause_s > self.service_s and self.limit < START:
            # Requests that were sent before the first refusal are served, so the cause was a low
            # limit on seats and not a storm. A try above this limit costs the pause that the
            # provider asks for, which is longer than an answer. With more seats the cause may be a
            # limit on the rate, which doubling finds sooner. While so little is known, one try is
            # worth the pause that it costs.
            self.pause_s *= FIRST_PAUSES
            self._aim(self.limit, self.cut_s)
        # Before the first refusal, the first round also counts, although it began with few requests
        # in flight.
        most = seen.at_grant if self.cut_s > -math.inf else max(seen.at_grant, seen.in_flight)
        if not is_new or most < SATURATED * self.seats:
            return False
        before = self.limit
        if self._curve is None:
            self.limit = min(self.ceiling, self.limit + step)
        elif not self._curve.is_over(seen.now_s):
            self.limit = min(self.ceiling, max(self.limit, self._curve.at(seen.now_s)))
        else:
            self._beyond(seen, self._curve.target)
        return self.limit != before

    def refused(self, seen: Observation) -> bool:
        """Lower the limit, but only once per epoch.

        Returns:
            Whether this refusal began a new epoch.
        """
        if seen.granted_s < self.settles_s:
            return False
        bound = float(max(1, seen.at_grant - 1))
        target = self._curve.target if self._curve is not None else self.limit
        if not self._served_since_cut and self._curve is not None:
            # This is a storm: cut the limit, and return to the old target.
            low = self.limit * CUT
        elif self._curve is not None and seen.at_grant < SATURATED * self.seats:
            # The request was refused although seats were free, so the limit is now lower.
            low = target = min(self.limit, bound)
        elif self._curve is None or self._curve.is_over(seen.now_s):
            # After a quiet time one refusal shows the limit exactly.
            floor = DEEPEST_CUT if self._curve is None else CUT
            low = target = max(floor * self.limit, min(self.limit, bound))
        else:
            # The request was refused while the limit returned to the target, which was too high.
            target = min(self.limit, max(bound, DEEPEST_CUT * self.limit))
            low = min(CUT * self.limit, target)
        self.limit = min(self.ceiling, max(1.0, low))
        target = max(self.limit, min(self.ceiling, target))
        self.pause_s = seen.feedback.retry_after_s or 0.0
        if self._curve is not None or self._served_since_cut:
            is_told_again = self._curve is not None and self._curve.is_over(seen.now_s)
            self._aim(target, seen.now_s, SPAN * self.service_s if is_told_again else SPAN_S)
        self.cut_s = seen.now_s
        self._n_let_in = seen.in_flight - 1
        self._served_since_cut = False
        self._step = 0.0
        return True

    def follow(self, seen: Observation) -> None:
        """Count another refusal from the burst that caused the cut: one request fewer was accepted.

        This applies only if many requests were sent before the first one was served. Until all of
        them have returned, it is unknown how many of them the provider accepts.
        """
        if self._is_steep and self.service_s == 0.0 and seen.granted_s < self.cut_s:
            self._n_let_in -= 1
            self.limit = max(1.0, min(self.limit, float(self._n_let_in)))

    def widen(self, seats: float, now_s: float) -> None:
        """Raise the limit to at least `seats`, because the refusals were not due to seats."""
        if seats > self.limit:
            self.limit = min(self.ceiling, seats)
            self._aim(self.limit, now_s)

    def _aim(self, target: float, now_s: float, least_s: float = SPAN_S) -> None:
        rate = self.seats / self.service_s if self.service_s else self.seats
        self._curve = Curve(self.limit, target, now_s, span_s(rate, self.pause_s, least_s))

    def _beyond(self, seen: Observation, target: float) -> None:
        if self._step == 0.0:
            self._step = max(1.0, FIRST_STEP * self.limit)
        elif seen.granted_s < self._raised_s:
            return
        else:
            self._clean += 1
            if self._clean < self.seats:
                return
            # With one additional seat per round, the search would take a hundred rounds to find a
            # doubled limit.
            self._step *= 2.0
        self._clean = 0
        self._raised_s = seen.now_s
        self.limit = min(self.ceiling, max(self.limit, target) + self._step)
