"""How many requests per second a provider has let in lately."""

from __future__ import annotations

from collections import deque

SHORT_S, LONG_S = 10, 60
ENOUGH = 10
"""So many in the short span tell the rate; with fewer the long one is asked."""


class AcceptedRate:
    """Sends that were not refused, counted by the second. Pure."""

    __slots__ = ("_counts", "_first_s")

    def __init__(self) -> None:
        self._counts: deque[list[int]] = deque()
        self._first_s: float | None = None

    def sent(self, now_s: float) -> None:
        """Count a send."""
        second = int(now_s)
        if self._first_s is None:
            self._first_s = now_s
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1][1] += 1
            return
        self._counts.append([second, 1])
        while self._counts[0][0] < second - LONG_S:
            self._counts.popleft()

    def refused(self, sent_s: float) -> None:
        """Take a send back."""
        second = int(sent_s)
        for entry in reversed(self._counts):
            if entry[0] <= second:
                if entry[0] == second:
                    entry[1] -= 1
                return

    def per_s(self, now_s: float) -> float:
        """Sends per second over the last ten seconds, or the last minute where those were few."""
        if self._first_s is None:
            return 0.0
        known_s = max(1.0, now_s - self._first_s)
        for span_s in (SHORT_S, LONG_S):
            n = sum(count for second, count in self._counts if second >= now_s - span_s)
            if n >= ENOUGH or span_s == LONG_S:
                return n / min(span_s, known_s)
        raise AssertionError
