"""How much of something there was in each slice of a stretch of time; pure."""

from __future__ import annotations

from array import array
from itertools import accumulate


class Bins:
    """Adds up stretches of time by slices of equal length, each in constant time.

    Args:
        start_s: Where the first slice begins.
        end_s: Where the last slice ends, > start_s.
        n: How many slices, >= 1.

    Attributes:
        width_s: Of one slice.
    """

    __slots__ = ("_from_here", "_in_slice", "_n", "_start_s", "width_s")

    def __init__(self, start_s: float, end_s: float, n: int) -> None:
        self._start_s = start_s
        self._n = n
        self.width_s = (end_s - start_s) / n
        # What begins in a slice counts there in part, and in whole in all that follow.
        self._in_slice = array("d", bytes(8 * (n + 1)))
        self._from_here = array("d", bytes(8 * (n + 2)))

    def add(self, from_s: float, until_s: float, weight: float = 1.0) -> None:
        """Count a stretch; what lies outside of all slices is cut off."""
        if until_s > from_s:
            self._step(from_s, weight)
            self._step(until_s, -weight)

    def seconds(self) -> array[float]:
        """By slice, seconds times weight of all that was added."""
        whole = accumulate(self._from_here)
        return array(
            "d",
            (
                part + steps * self.width_s
                for part, steps, _ in zip(self._in_slice, whole, range(self._n), strict=False)
            ),
        )

    def _step(self, at_s: float, weight: float) -> None:
        place = (at_s - self._start_s) / self.width_s
        if place <= 0:
            self._from_here[0] += weight
        elif place < self._n:
            at = int(place)
            self._in_slice[at] += weight * (at + 1 - place) * self.width_s
            self._from_here[at + 1] += weight
