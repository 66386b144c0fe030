"""How many requests at once a provider bears: the search for its limit on seats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED

if TYPE_CHECKING:
    from pytest_ultrapar.broker.adaptive.observation import Observation


SPAN, SHORTEST_SPAN_S, SPAN_S = 15.0, 3.0, 15.0
"""At least so long from a cut to the next try beyond the limit. Where one told it again: so many
times of an answer, but no less than the shorter one."""
REQUESTS_PER_TRY = 80
"""At least so many requests from a cut to the next try: a try costs one or two refusals, so they
stay below 2.5 % of all requests however small the limit is."""
PAUSES_PER_TRY, FIRST_PAUSES = 40, 0.3
"""The pause that a provider asks for stays below 2.5 % of the time as well."""
LONGEST_SPAN_S = 300.0


class Curve:
    """Where a limit may be, t seconds after it was cut from `target` to `low`.

    Up to `span_s` it follows CUBIC's concave part, target - (target - low) * (1 - t/span)^3: after
    half the span seven eighths of the way are done. From then on it stays at `target`; what lies
    beyond is for whoever searches.

    Source: RFC 9438, section 4.2 (CUBIC), with K given and not derived.
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
        """Whether the span has passed, and a try beyond the target is due."""
        return now_s - self.cut_s >= self.span_s


def span_s(requests_per_s: float, pause_s: float = 0.0, least_s: float = SPAN_S) -> float:
    """Seconds from a cut to the next try, at so many requests per second, if it costs a pause."""
    wanted_s = REQUESTS_PER_TRY / max(requests_per_s, 1e-9) + PAUSES_PER_TRY * pause_s
    least_s = min(SPAN_S, max(SHORTEST_SPAN_S, least_s))
    return min(LONGEST_SPAN_S, max(least_s, wanted_s))


START = 10
CUT = 0.9
"""A limit that is cut to c and grows again is used to about (1 + c) / 2: halving would waste a
quarter."""
DEEPEST_CUT = 0.5
"""Where doubling found the limit, half of the seats were known to be borne."""
FIRST_STEP = 0.02
"""The first try beyond a limit that held: so much of it, at least one seat."""


class SeatSearch:
    """An epoch-CUBIC window. Pure: the same observations give the same limits.

    It doubles per round trip until the first refusal. A refusal counts once per epoch: only a
    request that was granted after the last cut says anything about the limit since then. Without
    epochs a burst of twenty refusals would be twenty cuts, to an eighth; with a fixed time instead
    of epochs a limit that is far too high would keep on being refused for so long. A request
    that was refused as the n-th at once says that n - 1 may be the limit: after quiet times the cut
    goes there, else by a factor. From a cut the limit comes back along a `Curve`, stays, and then
    tries what lies beyond: a step, and with every clean round twice the step.

    Where nothing at all was served since the last cut, the refusals are no news about the limit (a
    storm, an outage), and the curve aims at the old limit.

    Attributes:
        limit: Seats, 1 to the ceiling; fractions wait until they are whole.
        ceiling: Never more seats than this; infinity for no bound.
        cut_s: When the last epoch began.
        service_s: How long an answer takes lately, seconds; 0 before the first.
        pause_s: How long a pause the last refusal that cut asked for, as far as it counts; 0 for
            none.
    """

    def __init__(self, ceiling: float, start: float = START) -> None:
        """Start the search.

        Args:
            ceiling: Never more seats than this, >= 1; infinity for no bound.
            start: Seats to begin with, >= 1; the ceiling if that is lower.
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
        """Seats that were borne, tries beyond left out; None while no refusal has shown a limit."""
        return None if self._curve is None else max(1, int(self._curve.target + 1e-9))

    @property
    def settles_s(self) -> float:
        """From when on a request tells something about the limit since the last cut."""
        return self.cut_s if self._served_since_cut else self.cut_s + 0.5 * self.service_s

    @property
    def seats(self) -> int:
        """Whole seats, >= 1."""
        return max(1, int(self.limit + 1e-9))

    def served(self, seen: Observation, step: float = 1.0) -> bool:
        """Take a success into account.

        Args:
            seen: The success.
            step: Seats that it adds until something is refused: one is twice as many per round
                trip.

        Returns:
            Whether the limit may have changed.
        """
        took_s = seen.now_s - seen.granted_s
        self.service_s += 0.1 * (took_s - self.service_s) if self.service_s else took_s
        if is_new := seen.granted_s >= self.cut_s:
            self._served_since_cut = True
        elif self._curve is None and self.pause_s > self.service_s and self.limit < START:
            # What was sent before the first refusal is served: that was no storm but a limit, of
            # few seats, and a try beyond it costs the pause that the provider asks for, which is
            # longer than an answer. Where more is borne the refusal may be about a rate, which
            # doubling finds sooner. One try is worth its pause while so little is known.
            self.pause_s *= FIRST_PAUSES
            self._aim(self.limit, self.cut_s)
        # Until something was refused, the first round counts as well, in which few were at once.
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
        """Cut, once per epoch.

        Returns:
            Whether this refusal began a new epoch.
        """
        if seen.granted_s < self.settles_s:
            return False
        bound = float(max(1, seen.at_grant - 1))
        target = self._curve.target if self._curve is not None else self.limit
        if not self._served_since_cut and self._curve is not None:
            # A storm: go down, and come back to the old aim.
            low = self.limit * CUT
        elif self._curve is not None and seen.at_grant < SATURATED * self.seats:
            # Refused with seats to spare: less is borne than before, and this says how much.
            low = target = min(self.limit, bound)
        elif self._curve is None or self._curve.is_over(seen.now_s):
            # After quiet times one refusal tells the limit exactly.
            floor = DEEPEST_CUT if self._curve is None else CUT
            low = target = max(floor * self.limit, min(self.limit, bound))
        else:
            # On the way back up: the aim was too high.
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
        """Another refusal of the burst that was cut for: so many fewer of it were let in.

        Only where many were sent before anything was served: nobody knows how many were too many.
        """
        if self._is_steep and self.service_s == 0.0 and seen.granted_s < self.cut_s:
            self._n_let_in -= 1
            self.limit = max(1.0, min(self.limit, float(self._n_let_in)))

    def widen(self, seats: float, now_s: float) -> None:
        """Have at least so many seats, since what was refused was not for want of them."""
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
            # One more per round would take a hundred rounds to find that a limit was doubled.
            self._step *= 2.0
        self._clean = 0
        self._raised_s = seen.now_s
        self.limit = min(self.ceiling, max(self.limit, target) + self._step)
