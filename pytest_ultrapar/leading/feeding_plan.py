"""What feeding needs to know of an assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.leading.feeding import HomeOf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.lanes.assignment import Assignment, Group
    from pytest_ultrapar.pool.model import Lane, Pool

MANY_SEATS = 1000
"""Stands for seats without a limit."""


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Groups so that none stands before one that it waits for; else in the order given.

    Fed in another order, workers would hold nothing but cases that wait for others not yet fed.
    """
    ordered: dict[str, Group] = {}
    while len(ordered) < len(groups):
        ordered.update(
            {
                group.name: group
                for group in groups
                if group.name not in ordered and all(name in ordered for name in group.after)
            }
        )
    return list(ordered.values())


def homes(pool: Pool, lanes: Sequence[Lane], assignment: Assignment) -> dict[str, HomeOf]:
    """What feeding needs of an assignment: each worker's models and its share of seats."""
    by_id = {lane.lane_id: lane for lane in lanes}
    sharers: dict[tuple[str, ...], int] = {}
    for home in assignment.home.values():
        sharers[tuple(home)] = sharers.get(tuple(home), 0) + 1
    found: dict[str, HomeOf] = {}
    for worker, home in assignment.home.items():
        own = tuple(by_id[lane] for lane in home if lane in by_id)
        if own:
            seats = pool.seats(own) or MANY_SEATS
            share = -(-seats // sharers[tuple(home)])
            found[worker] = HomeOf(frozenset(lane.model for lane in own), share)
    return found
