"""The joint capacity of lanes whose limits overlap: a maximum flow."""

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
    """Return the exact maximum that all ways can carry together; an integer if all `caps` are.

    Source: Edmonds and Karp 1972, starting from a greedy flow, which adds one way after another. If
    limits nest, the greedy flow is already the result. If they overlap, 300 lanes take a few
    milliseconds.

    Args:
        ways: For each way, its limits (at least one) in two halves. In all first halves, a given
            limit always comes directly after the same limit, or always comes first. In all second
            halves, it always comes directly before the same limit, or always comes last.
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
    """Use all the free capacity of a chain of limits, in a way that a later chain can undo."""
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
