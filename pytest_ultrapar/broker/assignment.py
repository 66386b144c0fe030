"""The assignment: the lanes that workers prefer, and the groups of cases that run together."""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.model import LaneId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Group(msgspec.Struct, frozen=True):
    """Cases that are scheduled by the same rule.

    A group ends when the episodes of all its cases have ended. Pytest may report them later.

    Attributes:
        name: The group's name. It is not empty, and unique in the assignment.
        cases: Case ids. A case belongs to at most one group. No rule applies to cases without a
            group.
        lanes: The only lanes that these cases may use; None allows every lane of their model.
        after: Names of groups that must end before this one starts.
        start_after_s: How many seconds to wait before this group starts. The time counts from the
            run's start or, if `after` names groups, from the moment when all of them have ended.
        exclusive: The name of a lock. Groups with the same lock never run at the same time.
        at_once: How many of the group's episodes may be open at the same time; None means any
            number.
    """

    name: str
    cases: tuple[str, ...]
    lanes: tuple[LaneId, ...] | None = None
    after: tuple[str, ...] = ()
    start_after_s: float = 0.0
    exclusive: str | None = None
    at_once: int | None = None


class Assignment(msgspec.Struct, frozen=True):
    """The rules that the assignment hook returns. The scheduler and the broker apply them.

    Attributes:
        home: The lanes that each worker prefers (affinity), by worker id. A lane gives priority to
            the workers that prefer it; other workers use its idle seats (work stealing). A worker
            that is not listed has no preference.
        groups: Rules for sets of cases, in the order in which the sets should be dispatched.
    """

    home: dict[str, tuple[LaneId, ...]] = {}
    groups: tuple[Group, ...] = ()

    @property
    def is_restricted(self) -> bool:
        """Whether a rule may prevent an episode from using a free lane of its model."""
        return any(
            group.lanes is not None
            or group.after
            or group.start_after_s > 0
            or group.exclusive
            or group.at_once
            for group in self.groups
        )


def check_assignment(assignment: Assignment, lanes: Collection[str]) -> None:
    """Refuse an assignment that contains unknown names or can never finish.

    Args:
        assignment: The return value of the hook.
        lanes: The ids of all lanes in the pool.

    Raises:
        ConfigError: There is an unknown lane or group, a name used twice, a case in two groups,
            groups that wait for each other, or a number out of range.
    """
    for worker, home in assignment.home.items():
        _check_lanes(f"the home of {worker}", home, lanes)
    groups: dict[str, Group] = {}
    owner: dict[str, str] = {}
    for group in assignment.groups:
        _check_group(group, lanes)
        if group.name in groups:
            refuse(f"assignment: two groups are named {group.name!r}; names must be unique")
        groups[group.name] = group
        for case_id in group.cases:
            if owner.setdefault(case_id, group.name) != group.name:
                refuse(
                    f"assignment: case {case_id} is in the groups {owner[case_id]!r} and "
                    f"{group.name!r}; a case may belong to at most one group"
                )
    _check_order(groups)


def _check_group(group: Group, lanes: Collection[str]) -> None:
    where = f"assignment: group {group.name!r}"
    if not group.name:
        refuse("assignment: a group has an empty name; every group needs a name")
    if group.lanes is not None:
        _check_lanes(f"group {group.name!r}", group.lanes, lanes)
    if not (math.isfinite(group.start_after_s) and group.start_after_s >= 0):
        refuse(f"{where}: start_after_s must be finite and >= 0 (got {group.start_after_s!r})")
    if group.at_once is not None and group.at_once < 1:
        refuse(f"{where}: at_once must be >= 1 or None (got {group.at_once!r})")


def _check_lanes(where: str, named: Iterable[str], lanes: Collection[str]) -> None:
    unknown = [lane for lane in named if lane not in lanes]
    if unknown:
        shown = ", ".join(sorted(lanes)[:8]) + (", ..." if len(lanes) > 8 else "")  # noqa: PLR2004
        refuse(f"assignment: {where} names the unknown lane {unknown[0]!r}; the pool has {shown}")


def _check_order(groups: dict[str, Group]) -> None:
    for group in groups.values():
        for name in group.after:
            if name not in groups:
                refuse(
                    f"assignment: group {group.name!r} comes after the unknown group {name!r}; "
                    f"the groups are {', '.join(map(repr, list(groups)[:8]))}"
                )
    try:
        TopologicalSorter({group.name: group.after for group in groups.values()}).prepare()
    except CycleError as error:
        stuck = ", ".join(name for name in groups if name in error.args[1])
        refuse(f"assignment: these groups wait for each other and never start: {stuck}")
