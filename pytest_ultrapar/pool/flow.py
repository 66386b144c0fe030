"""What lanes carry together where limits cross: a maximum flow."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# No limit has such a name.
_SOURCE, _SINK = "", " "
_Room = dict[str, dict[str, float]]


def max_flow(
    ways: Sequence[tuple[Sequence[str], Sequence[str]]], caps: Mapping[str, float]
) -> float:
    """The most that goes all ways together; exact, and an integer where all caps are.

    Source: Edmonds and Karp 1972, begun with what each way takes of what those before it left. That
    is all there is where limits nest; 300 lanes that cross cost some milliseconds.

    Args:
        ways: The limits of each way, at least one: on its first half a limit always stands behind
            the same one or none, on its second half before the same one or none.
        caps: By limit how much it lets pass.
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
    """Take all the room that a chain of limits has, and leave as much for taking it back."""
    amount = min(room[at][to] for at, to in arcs)
    for at, to in arcs:
        room[at][to] -= amount
        room[to][at] += amount
    return amount


def _shortest(room: _Room) -> tuple[str, ...]:
    """The shortest chain with room; empty when there is none."""
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
