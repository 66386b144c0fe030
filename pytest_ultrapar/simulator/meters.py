"""How the server counts what arrives: windows with one call of tolerance, and token buckets."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol


class Meter(Protocol):
    """Judges a stream of arrivals by one rate, which may change."""

    rate: float

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more arrival has a place, 0 when it has one now."""
        ...

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Count one arrival of `n` units."""
        ...

    def left(self, now_s: float) -> float:
        """Units that have a place now, >= 0; the tolerance is not among them."""
        ...


class ArrivalWindow:
    """A sliding window log: at most `floor(rate) + 1` arrivals in any window.

    The one call of tolerance is for the way from sender to server: sends that keep their distance
    may arrive closer together. A window is half open, so arrivals exactly `window_s` apart never
    share one.
    """

    __slots__ = ("_arrivals_s", "_window_s", "rate")

    def __init__(self, rate: float, window_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._arrivals_s: deque[float] = deque()

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more arrival has a place, 0 when it has one now."""
        arrivals_s = self._arrivals_s
        while arrivals_s and arrivals_s[0] + self._window_s <= now_s:
            arrivals_s.popleft()
        # The rate may have fallen since they came: then several must go first.
        n_over = len(arrivals_s) - math.floor(self.rate) - 1
        return 0.0 if n_over < 0 else arrivals_s[n_over] + self._window_s - now_s

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Count one arrival, whatever its units."""
        del n
        self._arrivals_s.append(now_s)

    def left(self, now_s: float) -> float:
        """Arrivals that have a place now, the tolerance left out."""
        self.wait_s(now_s)
        return max(0, math.floor(self.rate) - len(self._arrivals_s))


class UnitWindow:
    """A sliding window log of units: one more arrival has a place while the window holds <= `rate`.

    So no window holds more than the rate and the units of one call: the same tolerance as
    `ArrivalWindow`'s.
    """

    __slots__ = ("_arrivals", "_n", "_window_s", "rate")

    def __init__(self, rate: float, window_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._n = 0
        self._arrivals: deque[tuple[float, int]] = deque()

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more arrival has a place, 0 when it has one now."""
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] + self._window_s <= now_s:
            self._n -= arrivals.popleft()[1]
        over = self._n - self.rate
        if over <= 0:
            return 0.0
        for arrived_s, n in arrivals:
            over -= n
            if over <= 0:
                return arrived_s + self._window_s - now_s
        return self._window_s

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Count the units of one arrival."""
        self._arrivals.append((now_s, n))
        self._n += n

    def left(self, now_s: float) -> float:
        """Units that have a place now."""
        self.wait_s(now_s)
        return max(0.0, self.rate - self._n)


class Bucket:
    """A token bucket: holds up to `burst` units, fills at a rate, and each arrival takes its units.

    An arrival of one unit needs one whole unit. A larger one needs a bucket that is not empty, and
    may leave a debt: else one of more than `burst` units would never pass.

    Source: the token bucket of RFC 2697, section 3, with units in place of bytes.
    """

    __slots__ = ("_burst", "_level", "_t_s", "_window_s", "rate")

    def __init__(self, rate: float, window_s: float, burst: int, now_s: float) -> None:
        """Begin full.

        Args:
            rate: Units per window.
            window_s: Length of that window, seconds.
            burst: Units that it holds.
            now_s: When it begins.
        """
        self.rate = rate
        self._window_s = window_s
        self._burst = float(burst)
        self._level = self._burst
        self._t_s = now_s

    def change(self, rate: float, burst: int, now_s: float) -> None:
        """Fill at another rate and hold another number from now on."""
        self.wait_s(now_s)
        self.rate = rate
        self._burst = float(burst)

    def wait_s(self, now_s: float) -> float:
        """Seconds until it holds one unit, 0 when it does now."""
        per_s = self.rate / self._window_s
        self._level = min(self._burst, self._level + (now_s - self._t_s) * per_s)
        self._t_s = now_s
        # A wait that rounding cut short by a hair has been waited.
        missing = 1 - self._level
        return 0.0 if missing <= 1e-9 else missing / per_s  # noqa: PLR2004

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Take the units of one arrival."""
        self.wait_s(now_s)
        self._level -= n

    def left(self, now_s: float) -> float:
        """Units in it."""
        self.wait_s(now_s)
        return max(0.0, self._level)
