"""Runs on servers that slow down, in virtual time: when requests were sent and answered; pure."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def knee(most: float) -> Callable[[int], float]:
    """A server that does so much at once: beyond it all are slower by the same factor."""
    return lambda n: max(1.0, n / most)


def batches(most: float) -> Callable[[int], float]:
    """A server that is slower with each request more, and twice as slow with so many."""
    return lambda n: 1 + (n - 1) / most


class Asked(NamedTuple):
    """A request: of which case, and its times."""

    case: int
    sent_s: float
    ended_s: float


def play(
    sizes_s: Sequence[Sequence[float]],
    slowdown: Callable[[int], float],
    seats: int,
    *,
    gap_s: float = 0.0,
) -> list[Asked]:
    """The requests of a run.

    Args:
        sizes_s: Of each case the seconds that its answers take alone, one after the other.
        slowdown: How many times as long answers take with so many in flight.
        seats: Cases under way at once.
        gap_s: Seconds between two sendings, at least.
    """
    left = [list(one) for one in reversed(sizes_s)]
    ready = [(len(sizes_s) - len(left), left.pop()) for _ in range(min(seats, len(left)))]
    now_s = done = next_s = 0.0
    under_way: list[tuple[float, int, float, list[float]]] = []
    asked = []
    n_begun = len(ready)
    while ready or under_way:
        pace = slowdown(len(under_way)) if under_way else 1.0
        ends_s = now_s + (under_way[0][0] - done) * pace if under_way else float("inf")
        if ready and max(now_s, next_s) <= ends_s:
            sent_s = max(now_s, next_s)
            done += (sent_s - now_s) / pace
            now_s, next_s = sent_s, sent_s + gap_s
            case, turns = ready.pop(0)
            heapq.heappush(under_way, (done + turns[0], case, now_s, turns[1:]))
            continue
        now_s = ends_s
        done, case, sent_s, turns = heapq.heappop(under_way)
        asked.append(Asked(case, sent_s, now_s))
        if turns:
            ready.append((case, turns))
        elif left:
            ready.append((n_begun, left.pop()))
            n_begun += 1
    return asked
