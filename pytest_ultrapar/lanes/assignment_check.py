"""Whether an assignment can be carried out on a pool."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_ultrapar.lanes.assignment import Assignment, Group


def check_assignment(assignment: Assignment, lanes: Collection[str]) -> None:
    """Refuse an assignment that names what does not exist or can never be finished.

    Args:
        assignment: What the hook returned.
        lanes: Ids of all lanes of the pool.

    Raises:
        ConfigError: For an unknown lane or group, a name used twice, a case in two groups, groups
            that wait for each other, or a number out of range.
    """
    for worker, home in assignment.home.items():
        _check_lanes(f"home of {worker}", home, lanes)
    groups: dict[str, Group] = {}
    owner: dict[str, str] = {}
    for group in assignment.groups:
        _check_group(group, lanes)
        if group.name in groups:
            msg = f"assignment: two groups are named {group.name!r}; names must be unique"
            raise ConfigError(msg)
        groups[group.name] = group
        for case_id in group.cases:
            if owner.setdefault(case_id, group.name) != group.name:
                msg = (
                    f"assignment: case {case_id} is in the groups {owner[case_id]!r} and "
                    f"{group.name!r}; a case belongs to at most one"
                )
                raise ConfigError(msg)
    _check_order(groups)


def _check_group(group: Group, lanes: Collection[str]) -> None:
    where = f"assignment: group {group.name!r}"
    if not group.name:
        msg = "assignment: a group has an empty name; every group needs one"
        raise ConfigError(msg)
    if group.lanes is not None:
        _check_lanes(f"group {group.name!r}", group.lanes, lanes)
    if not (math.isfinite(group.start_after_s) and group.start_after_s >= 0):
        msg = f"{where}: start_after_s must be finite and >= 0 (got {group.start_after_s!r})"
        raise ConfigError(msg)
    if group.at_once is not None and group.at_once < 1:
        msg = f"{where}: at_once must be >= 1 or None (got {group.at_once!r})"
        raise ConfigError(msg)


def _check_lanes(where: str, named: Iterable[str], lanes: Collection[str]) -> None:
    unknown = [lane for lane in named if lane not in lanes]
    if unknown:
        shown = ", ".join(sorted(lanes)[:8]) + (", ..." if len(lanes) > 8 else "")  # noqa: PLR2004
        msg = f"assignment: {where} names the unknown lane {unknown[0]!r}; the pool has {shown}"
        raise ConfigError(msg)


def _check_order(groups: dict[str, Group]) -> None:
    n_before = {}
    followers: dict[str, list[str]] = {}
    for group in groups.values():
        before = set(group.after)
        n_before[group.name] = len(before)
        for name in before:
            if name not in groups:
                msg = (
                    f"assignment: group {group.name!r} comes after {name!r}, which is no group; "
                    f"there are {', '.join(map(repr, list(groups)[:8]))}"
                )
                raise ConfigError(msg)
            followers.setdefault(name, []).append(group.name)
    ready = [name for name, n in n_before.items() if n == 0]
    while ready:
        for follower in followers.get(ready.pop(), ()):
            n_before[follower] -= 1
            if n_before[follower] == 0:
                ready.append(follower)
    stuck = [name for name, n in n_before.items() if n]
    if stuck:
        msg = f"assignment: these groups wait for each other and never start: {', '.join(stuck)}"
        raise ConfigError(msg)
