"""A high quantile of recent values: the estimate for answers without a bound."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

QUANTILE = 0.95
REMEMBERED = 64
"""If a model's answers become longer, the estimate follows within this many answers."""
FEW = 8
"""With fewer answers than this the initial estimate still counts."""
ANSWER_TOKENS = 1000
"""The initial estimate for an answer whose request sets no bound."""


class HighQuantile:
    """A high quantile of the last values; pure.

    It is the `quantile` of the last `REMEMBERED` values: by default the largest of up to 20 values.
    With fewer than `FEW` values it is at least `supposed`, the initial estimate.
    """

    def __init__(self, supposed: float, quantile: float = QUANTILE) -> None:
        self._supposed, self._quantile = supposed, quantile
        self._last: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Add a value; it replaces the oldest of `REMEMBERED`."""
        if len(self._last) == REMEMBERED:
            self._sorted.remove(self._last.popleft())
        self._last.append(value)
        insort(self._sorted, value)

    @property
    def is_known(self) -> bool:
        """Whether it rests on enough values."""
        return len(self._last) >= FEW

    @property
    def value(self) -> float:
        """The quantile."""
        n = len(self._sorted)
        seen = self._sorted[math.ceil(self._quantile * n) - 1] if n else 0.0
        return seen if self.is_known else max(seen, self._supposed)

    @property
    def early(self) -> float:
        """Like `value`, but from the first values on: the largest, widened while they are few.

        One value is multiplied by nine, and the factor falls with each further one. The result
        never exceeds `value`: too much is reserved money that other requests wait for.
        """
        n = len(self._last)
        if self.is_known or not n:
            return self.value
        return min(self.value, self._sorted[-1] * (1 + FEW / n))
