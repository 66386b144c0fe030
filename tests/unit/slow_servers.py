"""Runs in virtual time on servers that slow down under load: the times of all requests."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def knee(most: float) -> Callable[[int], float]:
    """A server with full speed up to `most` requests; beyond, all slow down in proportion."""
    return lambda n: max(1.0, n / most)


def batches(most: float) -> Callable[[int], float]:
    """A server that slows down by 1 / `most` with each further request."""
    return lambda n: 1 + (n - 1) / most


class Asked(NamedTuple):
    """A request of a case, and its times."""

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
        sizes_s: The seconds that each answer of each case takes alone.
        slowdown: The factor by which answers slow down with so many requests in flight.
        seats: The most cases in flight.
        gap_s: The least seconds between two sends.
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
