"""A high quantile of what was seen last: by it answers are estimated that nothing bounds."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

QUANTILE = 0.95
REMEMBERED = 64
"""A model that begins to answer at greater length is followed within so many replies."""
FEW = 8
"""With fewer replies than that what was supposed still counts."""
ANSWER_TOKENS = 1000
"""Supposed of an answer when the request does not bound it."""


class High:
    """A high quantile of the last values; pure.

    The `quantile` of `REMEMBERED` values, which of up to 20 is the largest by default; with fewer
    than `FEW` at least what was supposed.
    """

    def __init__(self, supposed: float, quantile: float = QUANTILE) -> None:
        self._supposed, self._quantile = supposed, quantile
        self._last: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Take a value into account."""
        if len(self._last) == REMEMBERED:
            self._sorted.remove(self._last.popleft())
        self._last.append(value)
        insort(self._sorted, value)

    @property
    def is_known(self) -> bool:
        """Whether it stands on enough values."""
        return len(self._last) >= FEW

    @property
    def value(self) -> float:
        """The quantile."""
        n = len(self._sorted)
        seen = self._sorted[math.ceil(self._quantile * n) - 1] if n else 0.0
        return seen if self.is_known else max(seen, self._supposed)

    @property
    def early(self) -> float:
        """As `value`, but going by the first values: the largest, widened while they are few.

        Nine times as much with one value, less with each further one, and never more than
        what was supposed: too much is reserved money, which others wait for.
        """
        n = len(self._last)
        if self.is_known or not n:
            return self.value
        return min(self.value, self._sorted[-1] * (1 + FEW / n))
