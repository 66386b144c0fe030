"""How many requests per second a provider has let in lately."""

from __future__ import annotations

from collections import deque

SHORT_S, LONG_S, LONGEST_S = 2.0, 10.0, 60.0
LEAST_S = 1.0
ENOUGH = 10
"""So many in the long span tell the rate."""


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
        while self._counts[0][0] < second - LONGEST_S:
            self._counts.popleft()

    def refused(self, sent_s: float) -> None:
        """Take a send back, unless it went before anybody counted."""
        if self._first_s is None or sent_s < self._first_s:
            return
        second = int(sent_s)
        for entry in reversed(self._counts):
            if entry[0] <= second:
                if entry[0] == second:
                    entry[1] -= 1
                return

    def is_known(self, now_s: float) -> bool:
        """Whether sends were counted for long enough to tell a rate."""
        return self._first_s is not None and now_s - self._first_s >= LEAST_S

    def per_s(self, now_s: float) -> float:
        """Sends per second: the better of the last two and the last ten seconds.

        The short span keeps up with growth, the long one is not lowered by a pause; where even that
        has few sends, the last minute is asked.
        """
        if self._first_s is None:
            return 0.0
        if self._within(now_s, LONG_S) < ENOUGH:
            return self._mean(now_s, LONGEST_S)
        return max(self._mean(now_s, SHORT_S), self._mean(now_s, LONG_S))

    def _mean(self, now_s: float, span_s: float) -> float:
        assert self._first_s is not None
        known_s = now_s - max(self._first_s, _begin_s(now_s, span_s))
        return self._within(now_s, span_s) / max(1.0, known_s)

    def _within(self, now_s: float, span_s: float) -> int:
        begin_s = _begin_s(now_s, span_s)
        return sum(count for second, count in self._counts if second >= begin_s)


def _begin_s(now_s: float, span_s: float) -> int:
    """The first whole second within a span: sends are counted by those."""
    return int(now_s - span_s) + 1
