"""Groups of cases during a run: which groups may start, and how many episodes each has open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.timers import Timer, TimerQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.broker.lanes import LaneSet, LaneState, ModelState
    from pytest_ultrapar.broker.waiting import Line


class GroupState(Timer):
    """One group during a run. As a timer, it is due when the group's delay is over.

    Attributes:
        rule: Its rule in the assignment; None until an assignment lists the group.
        rank: Its position in the assignment.
        n_left: How many of its cases have not ended.
        n_open: How many of its episodes are open.
        has_opened: Whether any of its episodes has ever been opened.
        startable_s: The earliest time at which the rule's `after` and `start_after_s` allow it to
            start; infinity while this time is not known.
        admits: Whether its gate is open: whether its opening requests may be served now. Only then
            are its lines linked, so that the scheduler sees them.
        lines: Its lines (`waiting.Line`) in which at least one opening request is waiting.
        sets: The lanes it may use, by model. Entries are added as requests arrive.
    """

    def __init__(self, name: str, now_s: float) -> None:
        super().__init__()
        self.name = name
        self.rule: Group | None = None
        self.rank = 0
        self.n_left = 0
        self.n_open = 0
        self.has_opened = False
        self.startable_s = math.inf
        self.admits = False
        self.lines: dict[Line, None] = {}
        self.sets: dict[ModelState, LaneSet] = {}
        self._shut_s = 0.0
        self._shut_since_s = now_s

    def shut_s(self, now_s: float) -> float:
        """How many seconds its gate has been shut in total, up to `now_s`."""
        return self._shut_s if self.admits else self._shut_s + (now_s - self._shut_since_s)

    def set_gate(self, now_s: float, *, admits: bool) -> None:
        """Open or shut the gate, and show the group's lines to the scheduler or hide them."""
        if admits is self.admits:
            return
        if admits:
            self._shut_s += now_s - self._shut_since_s
        else:
            self._shut_since_s = now_s
        self.admits = admits
        for line in list(self.lines):
            if admits:
                line.link()
            else:
                line.unlink()


class GroupBook:
    """All groups in the assignment, and the cases that have ended.

    Groups with the same `exclusive` name share a lock. A group takes a free lock as soon as its
    `startable_s` has come and one of its opening requests is waiting. It releases the lock when its
    last case has ended. It also releases the lock if all of its waiting requests are withdrawn or
    refused before any of its episodes was opened.

    The gate of a group is open while its opening requests may be served. When a gate opens, all
    lanes of the models that the group's waiting requests need are checked again.
    """

    def __init__(self, wakes: TimerQueue, look_at: Callable[[Iterable[LaneState]], None]) -> None:
        self._wakes = wakes
        self._look_at = look_at
        self._groups: dict[str, GroupState] = {}
        self._by_case: dict[str, GroupState] = {}
        self._followers: dict[str, list[GroupState]] = {}
        self._sharers: dict[str, list[GroupState]] = {}
        self._holders: dict[str, GroupState] = {}
        self.ended: set[str] = set()
        self.start_s: float | None = None

    def find(self, name: str, now_s: float) -> GroupState | None:
        """The group with that name; None for the empty name.

        If there is no assignment yet, an unknown group is created, and its requests wait for the
        assignment.

        Raises:
            LookupError: The assignment has no group with that name.
        """
        if not name:
            return None
        group = self._groups.get(name)
        if group is None:
            if self.start_s is not None:
                raise LookupError(name)
            group = self._groups[name] = self._new_group(name, now_s)
        return group

    def _new_group(self, name: str, now_s: float) -> GroupState:
        group = GroupState(name, now_s)
        group.due = lambda now_s: self.refresh(group, now_s)
        return group

    def states(self) -> Collection[GroupState]:
        """All groups."""
        return self._groups.values()

    def get(self, name: str) -> GroupState | None:
        """The group with that name, or None."""
        return self._groups.get(name)

    def assign(self, assignment: Assignment, now_s: float) -> list[GroupState]:
        """Apply an assignment, and open the gate of each group that may start now.

        Open episodes and ended cases stay counted. A later assignment is made if a worker is
        replaced and the new worker has another name. It only changes rules.

        Returns:
            The groups that have waiting requests but are missing from the assignment.
        """
        if self.start_s is None:
            self.start_s = now_s
        named = {group.name for group in assignment.groups}
        orphans = [state for name, state in self._groups.items() if name not in named]
        for state in orphans:
            state.rule = None
            state.set_gate(now_s, admits=False)
            del self._groups[state.name]
        self._by_case, self._followers, self._sharers = {}, {}, {}
        for rank, rule in enumerate(assignment.groups):
            state = self._groups.setdefault(rule.name, self._new_group(rule.name, now_s))
            state.rule, state.rank = rule, rank
            state.sets.clear()
            left = {case_id for case_id in rule.cases if case_id not in self.ended}
            state.n_left = len(left)
            self._by_case.update(dict.fromkeys(left, state))
            for name in rule.after:
                self._followers.setdefault(name, []).append(state)
            if rule.exclusive is not None:
                self._sharers.setdefault(rule.exclusive, []).append(state)
        self._holders = {
            lock: state
            for lock, state in self._holders.items()
            if state.rule is not None and state.rule.exclusive == lock and state.n_left
        }
        for rule in assignment.groups:
            self._schedule(self._groups[rule.name], now_s)
        return [state for state in orphans if state.lines]

    def end_case(self, case_id: str, now_s: float) -> None:
        """Count a case as ended, and open the gates of groups that waited for this. Idempotent."""
        if case_id in self.ended:
            return
        self.ended.add(case_id)
        group = self._by_case.pop(case_id, None)
        if group is None:
            return
        group.n_left -= 1
        if not group.n_left:
            for follower in self._followers.get(group.name, ()):
                self._schedule(follower, now_s)
            self._release_lock(group, now_s)

    def refresh(self, group: GroupState, now_s: float) -> None:
        """Open or shut the group's gate, depending on what its rule requires at `now_s`."""
        admits = self._decide(group, now_s)
        if admits is group.admits:
            return
        group.set_gate(now_s, admits=admits)
        for model in dict.fromkeys(line.model for line in group.lines) if admits else ():
            self._look_at(model.lanes)

    def went_quiet(self, group: GroupState, now_s: float) -> None:
        """Release the group's lock if the group has no waiting requests and is not running."""
        is_running = group.has_opened and (group.n_left or group.n_open)
        if not group.lines and not is_running:
            self._release_lock(group, now_s)

    def _schedule(self, group: GroupState, now_s: float) -> None:
        rule = group.rule
        if rule is None or self.start_s is None:
            return
        if group.startable_s == math.inf and not any(
            self._groups[name].n_left for name in rule.after
        ):
            # With predecessors, the delay counts from the end of the last one, otherwise from the
            # run's start.
            group.startable_s = (now_s if rule.after else self.start_s) + rule.start_after_s
        if now_s < group.startable_s < math.inf:
            self._wakes.ensure(group, group.startable_s)
        self.refresh(group, now_s)

    def _decide(self, group: GroupState, now_s: float) -> bool:
        rule = group.rule
        if rule is None or now_s < group.startable_s:
            return False
        if rule.exclusive is not None and not self._holds_lock(group, rule.exclusive):
            return False
        return rule.at_once is None or group.n_open < rule.at_once

    def _holds_lock(self, group: GroupState, lock: str) -> bool:
        holder = self._holders.get(lock)
        if holder is None and group.lines:
            holder = self._holders[lock] = group
        return holder is group

    def _release_lock(self, group: GroupState, now_s: float) -> None:
        lock = group.rule.exclusive if group.rule is not None else None
        if lock is None or self._holders.get(lock) is not group:
            return
        del self._holders[lock]
        for candidate in self._sharers.get(lock, ()):
            if candidate is not group:
                self.refresh(candidate, now_s)
        # Refresh this group last. Otherwise it would take the lock again before any other group.
        self.refresh(group, now_s)
