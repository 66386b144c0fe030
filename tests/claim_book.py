"""A model of one run's claims: the same calls at the same times give the script's answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from pytest_ultrapar.cluster.claim_protocol import (
    Claimed,
    GroupRule,
    JoinCall,
    LeaveCall,
    OtherRun,
    ReopenCall,
    Reopened,
    SameName,
    Unknown,
)


@dataclass(slots=True)
class _Host:
    name: str
    life: str
    seen_ms: int
    open: int = 0
    seq: int = -1
    given: list[int] = field(default_factory=list)
    held: Counter[int] = field(default_factory=Counter)


class ClaimBook:
    """The script's behaviour, modelled with sets.

    At all times each case is unclaimed, claimed or done. At most one host claims a case, and no
    host claims a case that is done.
    """

    def __init__(self) -> None:
        self.identity: str | None = None
        self.lines: list[tuple[int, int]] = []
        self.groups: list[GroupRule] = []
        self.hosts: dict[int, _Host] = {}
        self.claims: dict[int, int] = {}
        self.back: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self._cursors: list[int] = []
        self._next = 0
        self._opens_ms = 0
        self._elected: int | None = None
        self._began_ms = 0
        self._starts_ms: dict[int, int] = {}
        self.locks: dict[int, int] = {}
        self._dead: list[str] = []

    def call(self, call, now_ms: int):
        """Make a call at a time of the server's clock, in milliseconds."""
        if isinstance(call, JoinCall):
            return self._join(call, now_ms)
        if isinstance(call, ReopenCall):
            again = self.done.intersection(call.cases)
            self.done -= again
            self.failed -= again
            self.back |= again
            return Reopened(len(again))
        host = self.hosts.get(call.host)
        if host is None or host.life != call.life:
            return Unknown()
        if isinstance(call, LeaveCall):
            self._finish(call.done, self.failed.discard)
            self._finish(call.failed, self.failed.add)
            self._release(call.host)
            return None
        was_away = host.seen_ms <= now_ms - call.silent_ms
        host.seen_ms = now_ms
        self._forget_silent(now_ms, call.silent_ms, knows=not was_away)
        if host.seq != call.seq:
            self._finish(call.done, self.failed.discard)
            self._finish(call.failed, self.failed.add)
            host.held = Counter(dict(call.open_of))
            given: list[int] = []
            if self._opens_ms <= now_ms:
                for line, n in call.wants:
                    given += self._give(call.host, line, n, now_ms)
            host.open, host.seq, host.given = call.open + len(given), call.seq, given
        return self._answer(call.host, now_ms, host.given)

    def _join(self, call: JoinCall, now_ms: int):
        self._forget_silent(now_ms, call.silent_ms, knows=not call.comes_back)
        if self.identity is not None and self.identity != call.identity:
            return OtherRun(self.identity)
        for number, other in list(self.hosts.items()):
            if other.name == call.name:
                if other.life != call.life:
                    return SameName(now_ms - other.seen_ms)
                self._release(number)
        if self.identity is None:
            self.claims, self.back, self.done, self.failed = {}, set(), set(), set()
            self.identity, self.lines = call.identity, list(call.lines)
            self.groups = list(call.groups)
            self._began_ms, self._starts_ms, self.locks, self._dead = now_ms, {}, {}, []
            self._cursors = [first for first, _ in call.lines]
            self._opens_ms = now_ms + call.silent_ms if call.comes_back else 0
        self._next += 1
        host = self.hosts[self._next] = _Host(call.name, call.life, now_ms)
        self._finish(call.done, self.failed.discard)
        self._finish(call.failed, self.failed.add)
        again = [case for case in call.holding if case not in self.done and case not in self.claims]
        self.back.difference_update(again)
        self.claims.update(dict.fromkeys(again, self._next))
        host.open, host.held = len(call.holding), Counter(dict(call.open_of))
        is_over = not any(self.unclaimed()) and not any(one.open for one in self.hosts.values())
        if not call.comes_back and is_over and len(self.hosts) == 1:
            self.back |= self.failed
            self.done -= self.failed
            self.failed.clear()
        answer = self._answer(self._next, now_ms, [])
        lost = [case for case in call.holding if case not in again]
        return msgspec.structs.replace(answer, lost=lost)

    def _answer(self, number: int, now_ms: int, given: list[int]) -> Claimed:
        said = Claimed(
            host=number,
            n_hosts=len(self.hosts),
            n_done=len(self.done),
            n_failed=len(self.failed),
            n_open=sum(one.open for one in self.hosts.values()),
            elected=False,
            waits_ms=max(0, self._opens_ms - now_ms),
            unclaimed=self.unclaimed(),
            claimable=[self.claimable(line, now_ms) for line in range(len(self.lines))],
            given=list(given),
            n_dead=len(self._dead),
            last_dead=self._dead[-1] if self._dead else "",
        )
        self._elected = (self._elected or number) if said.is_over else None
        return msgspec.structs.replace(said, elected=self._elected == number)

    def unclaimed(self) -> list[int]:
        return [
            last - cursor + sum(first <= case < last for case in self.back)
            for (first, last), cursor in zip(self.lines, self._cursors, strict=True)
        ]

    def open(self, group: int) -> int:
        return sum(host.held[group] for host in self.hosts.values())

    def left(self, group: int) -> int:
        return sum(self.unclaimed()[slice(*self.groups[group].lines)])

    def is_over(self, group: int) -> bool:
        return not self.open(group) and not self.left(group)

    def is_startable(self, group: int, now_ms: int) -> bool:
        rule = self.groups[group]
        if not all(self.is_over(one) for one in rule.after):
            return False
        if not rule.start_after_ms:
            return True
        began_ms = self._starts_ms.setdefault(group, now_ms) if rule.after else self._began_ms
        return began_ms + rule.start_after_ms <= now_ms

    def may_lock(self, group: int, now_ms: int) -> bool:
        lock = self.groups[group].lock
        sharers = [one for one, rule in enumerate(self.groups) if rule.lock == lock]
        if any(self.open(one) for one in sharers if one != group):
            return False
        holder = self.locks.get(lock)
        goes_on = holder is not None and not self.is_over(holder)
        if goes_on and (self.open(holder) or self.is_startable(holder, now_ms)):
            return holder == group
        able = (one for one in sharers if self.left(one) and self.is_startable(one, now_ms))
        return next(able, None) == group

    def group_of(self, line: int) -> int | None:
        of = (group for group, one in enumerate(self.groups) if line in range(*one.lines))
        return next(of, None)

    def claimable(self, line: int, now_ms: int) -> int:
        n, group = self.unclaimed()[line], self.group_of(line)
        if group is None or not n:
            return n
        rule = self.groups[group]
        if rule.at_once:
            n = min(n, max(0, rule.at_once - self.open(group)))
        if not n or not self.is_startable(group, now_ms):
            return 0
        return n if rule.lock < 0 or self.may_lock(group, now_ms) else 0

    def _give(self, number: int, line: int, n: int, now_ms: int) -> list[int]:
        n, group = min(n, self.claimable(line, now_ms)), self.group_of(line)
        if n <= 0:
            return []
        first, last = self.lines[line]
        given = sorted(case for case in self.back if first <= case < last)[:n]
        self.back.difference_update(given)
        at = self._cursors[line]
        while len(given) < n and at < last:
            if at not in self.done and at not in self.claims and at not in given:
                given.append(at)
            at += 1
        self._cursors[line] = at
        self.claims.update(dict.fromkeys(given, number))
        if group is not None and given:
            self.hosts[number].held[group] += len(given)
            if self.groups[group].lock >= 0:
                self.locks[self.groups[group].lock] = group
        return given

    def _finish(self, cases, mark) -> None:
        for case in cases:
            self.claims.pop(case, None)
            self.back.discard(case)
            # An answer always counts; "no answer" counts only if there is no answer yet.
            if case not in self.done or mark == self.failed.discard:
                mark(case)
            self.done.add(case)

    def _forget_silent(self, now_ms: int, silent_ms: int, *, knows: bool) -> None:
        by_time = sorted(self.hosts.items(), key=lambda pair: (pair[1].seen_ms, str(pair[0])))
        for number, host in by_time:
            if host.seen_ms <= now_ms - silent_ms:
                self._dead += [host.name] if knows else []
                self._release(number)

    def _release(self, number: int) -> None:
        cases = [case for case, owner in self.claims.items() if owner == number]
        for case in cases:
            del self.claims[case]
        self.back.update(cases)
        del self.hosts[number]
