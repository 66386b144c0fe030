"""A high quantile of recent values. It is the estimate for answers without an upper bound."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

QUANTILE = 0.95
REMEMBERED = 64
"""How many values are remembered. If answers grow longer, the estimate has caught up with them
after this many answers."""
FEW = 8
"""While there are fewer values than this, the initial estimate is taken into account."""
ANSWER_TOKENS = 1000
"""The initial estimate for an answer whose request sets no upper bound."""


class HighQuantile:
    """Computes a high quantile of the last values. Does no I/O.

    The result is the `quantile` of the last `REMEMBERED` values. With the default quantile, this is
    the largest value if there are fewer than 20 values. With fewer than `FEW` values, the result is
    never below `supposed`, the initial estimate.
    """

    def __init__(self, supposed: float, quantile: float = QUANTILE) -> None:
        self._supposed, self._quantile = supposed, quantile
        self._last: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Add a value. If there are already `REMEMBERED` values, it replaces the oldest one."""
        if len(self._last) == REMEMBERED:
            self._sorted.remove(self._last.popleft())
        self._last.append(value)
        insort(self._sorted, value)

    @property
    def is_known(self) -> bool:
        """Whether there are enough values, so that the initial estimate no longer counts."""
        return len(self._last) >= FEW

    @property
    def value(self) -> float:
        """The quantile."""
        n = len(self._sorted)
        seen = self._sorted[math.ceil(self._quantile * n) - 1] if n else 0.0
        return seen if self.is_known else max(seen, self._supposed)

    @property
    def early(self) -> float:
        """Like `value`, but while there are few values, it is the largest one times a factor.

        The factor is 9 with a single value, and it falls with each additional one. The result never
        exceeds `value`, because too much reserved money would make other requests wait.
        """
        n = len(self._last)
        if self.is_known or not n:
            return self.value
        return min(self.value, self._sorted[-1] * (1 + FEW / n))
