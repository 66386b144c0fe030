"""Compute the joint capacity of lanes whose limits overlap, as a maximum flow."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# No limit can have one of these names.
_SOURCE, _SINK = "", " "
_Room = dict[str, dict[str, float]]


def max_flow(
    ways: Sequence[tuple[Sequence[str], Sequence[str]]], caps: Mapping[str, float]
) -> float:
    """Return the exact maximum flow through all ways together; an integer if all `caps` are.

    The algorithm is from Edmonds and Karp 1972. It starts from a greedy flow, which fills one way
    after another. If all limits are nested, the greedy flow is already the maximum. If limits
    overlap, the search takes a few milliseconds for 300 lanes.

    Args:
        ways: The limits on each way (at least one), in two halves. A limit in the first halves is
            always first, or always comes directly after the same other limit. A limit in the second
            halves is always last, or always comes directly before the same other limit.
        caps: The capacity of each limit.
    """
    room: _Room = defaultdict(dict)
    total: float = 0
    for first, second in ways:
        chain = (_SOURCE, *first, *second, _SINK)
        amounts = (*(caps[name] for name in first), math.inf, *(caps[name] for name in second))
        arcs = list(pairwise(chain))
        for (at, to), amount in zip(arcs, amounts, strict=True):
            if to not in room[at]:
                room[at][to], room[to][at] = amount, 0
        total += _send(room, arcs)
    while chain := _shortest(room):
        total += _send(room, list(pairwise(chain)))
    return total


def _send(room: _Room, arcs: Sequence[tuple[str, str]]) -> float:
    """Use all the free capacity of a chain of limits. A later chain can take some of it back."""
    amount = min(room[at][to] for at, to in arcs)
    for at, to in arcs:
        room[at][to] -= amount
        room[to][at] += amount
    return amount


def _shortest(room: _Room) -> tuple[str, ...]:
    """The shortest chain that has free capacity; empty if there is no such chain."""
    before: dict[str, tuple[str, ...]] = {_SOURCE: (_SOURCE,)}
    order = [_SOURCE]
    for at in order:
        for to, free in room[at].items():
            if free > 0 and to not in before:
                before[to] = (*before[at], to)
                order.append(to)
        if _SINK in before:
            return before[_SINK]
    return ()
