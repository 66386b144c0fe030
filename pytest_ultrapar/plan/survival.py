"""How long something takes, from what has ended and from what is still under way; pure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Survival:
    """Lengths of which some are only known to be longer than so much.

    What has ended early in a run was short; its plain mean would promise too much, and what is
    under way, counted as if it ended now, too.

    Source: Kaplan and Meier, "Nonparametric estimation from incomplete observations" (1958). What
    is left beyond the longest length seen is taken to end at the mean rate of all, and to be no
    longer than that length again: where all are about equally long, few have ended at first.
    """

    def __init__(self, ended: Mapping[float, int], under_way: Mapping[float, int]) -> None:
        """Learn from counts.

        Args:
            ended: How many took how long, > 0.
            under_way: How many took longer than so much, and are not over.
        """
        self._steps: list[tuple[float, float]] = []
        n_left = sum(ended.values()) + sum(under_way.values())
        n_ended = sum(ended.values())
        self.is_known = n_ended > 0
        """Whether anything has ended; else nothing can be said."""
        exposure = sum(length * n for part in (ended, under_way) for length, n in part.items())
        longest = max((*ended, *under_way), default=0.0)
        self._tail = min(exposure / n_ended, longest) if n_ended else 0.0
        share = 1.0
        for length in sorted({*ended, *under_way}):
            if length in ended:
                share *= 1 - ended[length] / n_left
                self._steps.append((length, share))
            n_left -= ended.get(length, 0) + under_way.get(length, 0)

    def rest(self, reached: float = 0.0) -> float:
        """How much more it takes on the mean, of what has taken `reached` and is not over."""
        still, at, area = 1.0, reached, 0.0
        begun = 1.0
        for length, share in self._steps:
            if length <= reached:
                begun = still = share
                continue
            area += still * (length - at)
            at, still = length, share
        if begun <= 0:
            return self._tail
        return (area + still * self._tail) / begun

    def uneven(self, n: int) -> float:
        """How much longer than their mean the last of `n` takes that are under way at some time.

        The rest of what is met under way lies at or below x with chance 1 - (area of the curve
        beyond x) / (whole area).
        """
        whole = self.rest()
        if n < 1 or whole <= 0:
            return 0.0
        corners = [0.0, *(length for length, _ in self._steps)]
        shares = [1.0, *(share for _, share in self._steps)]
        rests = [share * self.rest(at) for at, share in zip(corners, shares, strict=True)]
        longest = next(
            (at for at, rest in zip(corners, rests, strict=True) if rest <= whole / (n + 1)),
            corners[-1],
        )
        # The mean rest is the area under `rests` by the whole: trapezes, and the tail.
        moment = sum(
            (late - early) * (more + less) / 2
            for (early, late), (more, less) in zip(pairwise(corners), pairwise(rests), strict=True)
        )
        return max(0.0, longest - (moment + rests[-1] * self._tail) / whole)


def merged(parts: Iterable[Mapping[int, int] | Mapping[float, int]]) -> Counter[float]:
    """Counts of several kinds together."""
    whole: Counter[float] = Counter()
    for part in parts:
        for length, n in part.items():
            whole[length] += n
    return whole
