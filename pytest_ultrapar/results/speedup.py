"""How much faster one way to run cases was than another, and how sure that is; pure.

A speed-up is the ratio of two rates, each a number of completed cases over the seconds that they
took together. So that cases can be drawn again (bootstrap), each has its part of those seconds: of
a serial run the time from the completion before it to its own, of a concurrent one its share of
the makespan.
"""

from __future__ import annotations

import math
import random
import statistics
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.critical_values import critical_t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.results.service import Span

_SEED = 95
_DRAWS = 1000
_MOST_BLOCKS = 64
_LEAST_DRAWN = 8
_FEW_CONFIDENCE, _FEW_LEAST_SPREAD = 0.99, 0.1
LEAST_CASES = 3
"""With fewer on either side there is no interval."""

_NORMAL = NormalDist()
_BEGINS, _ENDS = 0, 1


class Part(NamedTuple):
    """What one case, or several, give to the two rates.

    Attributes:
        n_slow: Completed in the slower run, usually the serial one; `slow_s` seconds of it.
        n_fast: Completed in the other; `fast_s` seconds of it.
    """

    n_slow: int
    slow_s: float
    n_fast: int
    fast_s: float


def speedup(parts: Sequence[Part]) -> float | None:
    """Cases per second of the fast run over those of the slow one; None where there are none."""
    whole = _sum(parts)
    if not (whole.n_slow and whole.slow_s > 0 and whole.n_fast and whole.fast_s > 0):
        return None
    return (whole.n_fast / whole.fast_s) / (whole.n_slow / whole.slow_s)


def speedup_interval(strata: Sequence[Sequence[Part]]) -> tuple[float, float] | None:
    """Interval of the speed-up at 95 %, with 3 to 7 cases at 99 %; None with fewer than 3.

    From 8 cases on it is by bootstrap over cases.

    Cases of one stratum are drawn with what they give to both rates, so cases that were run both
    ways must stand in one; a sample and the cases compared with it are two strata, drawn
    apart. Of many cases, blocks are drawn that were put together at random: the spread of the sum
    stays the same, and 12,000 cases cost as much as 64.

    Of samples of cases whose times vary by 30 to 90 % of their mean, so many in 100 miss the true
    speed-up, where 5 should: 5 to 10 with 8 cases, 4 to 7 with 30, 4 to 5 with 100. With 3 cases 22
    would: with fewer than 8 it is Student's interval at 99 % of the logarithm instead, by the first
    derivatives of the rates, and cases count as if they varied by 10 % of their mean at least. Wide
    as that is (a factor of 1.5 to 2.3 with 7 cases that vary by 30 to 60 %, of 4 to 17 with 3), it
    misses the truth in 0 to 3 of 100, also where cases vary by their mean and more.

    The percentiles lie further out than at 2.5 and 97.5, as Student's t does from the normal
    distribution: for few cases the plain ones are too narrow.

    Args:
        strata: Each not empty.

    Source: B. Efron, R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13; T. C.
        Hesterberg, What Teachers Should Know About the Bootstrap, Am. Stat. 69 (2015) 371-386,
        section 5.3 (expanded percentiles). W. G. Cochran, Sampling Techniques (1977), chapter 6
        (derivatives of a ratio).
    """
    least = min((sum(1 for part in parts if any(part)) for parts in strata), default=0)
    if least < LEAST_CASES:
        return None
    if least < _LEAST_DRAWN:
        return _interval_of_few(strata, least)
    draw = random.Random(_SEED)
    blocks = [_blocks(parts, draw) for parts in strata]
    found: list[float] = []
    for _ in range(_DRAWS):
        drawn = [_sum(draw.choices(one, k=len(one))) for one in blocks]
        ratio = speedup(drawn)
        if ratio is not None:
            found.append(ratio)
    if len(found) < _DRAWS // 2:
        return None
    found.sort()
    tail = _tail(min(least, _MOST_BLOCKS))
    most = len(found) - 1
    return found[math.floor(tail * most)], found[math.ceil((1 - tail) * most)]


def makespan_shares(spans: Sequence[Span], beside: Sequence[Span] = ()) -> list[float]:
    """Each episode's share of the makespan, in the order given.

    Every moment is divided among the episodes that are under way then; a pause in which nothing is
    under way belongs to the one that begins next. Unlike the time since the last completion it does
    not depend on how completions fall together: four lanes in step complete four at once and then
    none for a while.

    Args:
        spans: Of the episodes that pay; without others their shares add up to the makespan.
        beside: Of episodes that pay nothing. A moment at which only these are under way is left
            out, and so is a pause before one of these.
    """
    n = len(spans)
    events = sorted(
        event
        for at, (start_s, end_s) in enumerate([*spans, *_stretches(beside)])
        for event in ((start_s, _BEGINS, at), (end_s, _ENDS, at))
    )
    shares = [0.0] * n
    paid_s = idle_s = 0.0  # what one episode has to pay that was under way from the beginning
    n_paying = n_beside = 0
    before_s = events[0][0] if events else 0.0
    for now_s, event, at in events:
        if n_paying:
            paid_s += (now_s - before_s) / n_paying
        elif not n_beside:
            idle_s += now_s - before_s
        before_s = now_s
        step = 1 if event == _BEGINS else -1
        if at >= n:
            n_beside += step
        else:
            n_paying += step
            shares[at] += idle_s - paid_s if event == _BEGINS else paid_s
        idle_s = 0.0
    return shares


def _stretches(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """When any of them was under way: few stretches of many episodes, which cost less time."""
    found: list[tuple[float, float]] = []
    begun_s = ended_s = -math.inf
    for start_s, end_s in sorted(spans):
        if start_s > ended_s:
            found.append((begun_s, ended_s))
            begun_s, ended_s = start_s, end_s
        elif end_s > ended_s:
            ended_s = end_s
    return [*found[1:], (begun_s, ended_s)] if spans else []


def _sum(parts: Sequence[Part]) -> Part:
    columns = [sum(column) for column in zip(*parts, strict=True)]
    return Part(*columns) if columns else Part(0, 0.0, 0, 0.0)


def _interval_of_few(strata: Sequence[Sequence[Part]], least: int) -> tuple[float, float] | None:
    whole = _sum([part for parts in strata for part in parts])
    factor = speedup([whole])
    if factor is None:
        return None
    variance = 0.0
    for parts in strata:
        # What each case moves the logarithm by.
        moved = [
            part.n_fast / whole.n_fast
            - part.fast_s / whole.fast_s
            - part.n_slow / whole.n_slow
            + part.slow_s / whole.slow_s
            for part in parts
        ]
        variance += len(parts) * statistics.variance(moved)
    error = max(math.sqrt(variance), _FEW_LEAST_SPREAD / math.sqrt(least))
    reach = math.exp(critical_t(least, _FEW_CONFIDENCE) * error)
    return factor / reach, factor * reach


def _blocks(parts: Sequence[Part], draw: random.Random) -> list[Part]:
    if len(parts) <= _MOST_BLOCKS:
        return list(parts)
    mixed = draw.sample(parts, len(parts))
    return [_sum(mixed[at::_MOST_BLOCKS]) for at in range(_MOST_BLOCKS)]


def _tail(n: int) -> float:
    """The share below the lower percentile: 0.025 for many cases, less for few."""
    return _NORMAL.cdf(-((n / (n - 1)) ** 0.5) * critical_t(n, 0.95))
