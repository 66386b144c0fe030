"""How many requests per second a provider has let in lately."""

from __future__ import annotations

from collections import deque

SHORT_S, LONG_S, MINUTE_S, LONGEST_S = 2.0, 10.0, 60.0, 180.0
LEAST_S = 1.0
"""What was let in during less than a second may have been a burst."""
ENOUGH = 10
"""So many in the long span tell the rate."""


class AcceptedRate:
    """Sends that were not refused, counted by the second. Pure.

    Attributes:
        was_any_served: Whether the provider has served anything yet: before that nobody knows of
            any send that it was let in.
    """

    __slots__ = ("_counts", "_first_s", "was_any_served")

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

    def sent_before(self, n: int, since_s: float, now_s: float) -> None:
        """Count sends that went before anybody counted, as if they had been spread evenly.

        Args:
            n: How many, those of them included that will be refused.
            since_s: When the first of them went.
            now_s: Now.
        """
        self._first_s = since_s
        seconds = range(max(int(since_s), int(now_s - LONGEST_S)), int(now_s) + 1)
        each = n / max(len(seconds), now_s - since_s)
        self._counts = deque((second, each) for second in seconds)

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
