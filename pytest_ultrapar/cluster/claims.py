"""Who runs which case of a run that several hosts share: late claims, in small numbers.

Nothing is dealt in advance: a host claims cases when it is about to have nothing to send, so all
hosts end together however fast each is. A host that dies gives its claims back by expiry. What all
hosts must agree on, they compare when they join.

`claims.lua` does this on the server, in one call; `ClaimBook` is the same as a model, against which
it is tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SILENT_MS = 15_000
"""A host that says nothing for so long is taken for dead, and its cases run elsewhere. Longer than
what ends its limits (`ledger`): a case that is asked twice costs money, one that waits does not."""
KEEP_MS = 7 * 86_400_000
"""A run that nobody touches for a week is forgotten."""
KEY_NAMES = (
    "run",
    "hosts",
    "seen",
    "open",
    "given",
    "cursors",
    "back",
    "claims",
    "failed",
    "done",
)
"""Of the script, in its order; each behind the run's prefix."""


class JoinCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="join"):
    """A host joins, or comes back after it was taken for dead or the server forgot it.

    Attributes:
        name: The host's; no two living ones have the same.
        life: Random; another one of the same name is another process.
        identity: What all hosts must agree on, as JSON text.
        models: For each model the first of its cases and the one behind its last.
        said: What people are told of the host.
        comes_back: Whether it was here before.
        holding: Cases that it has claimed and not finished.
        done: Cases that it has finished, with a grade or an error of the suite.
        failed: Those that it finished without an answer (`infra`).
    """

    name: str
    life: str
    identity: str
    models: list[tuple[int, int]]
    said: str = ""
    comes_back: bool = False
    holding: list[int] = []
    done: list[int] = []
    failed: list[int] = []
    silent_ms: int = SILENT_MS
    keep_ms: int = KEEP_MS


class ClaimCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="claim"):
    """A host says what it has finished, and what more it could begin.

    Attributes:
        host: The number that it got when it joined.
        seq: One higher with each call; the same call sent again does nothing and is answered again.
        done: Cases finished since the last call.
        failed: Those of them without an answer are here instead.
        open: Its cases whose episodes have not ended.
        wants: How many more cases of which models.
        said: What people are told of the host.
    """

    host: int
    life: str
    seq: int
    done: list[int] = []
    failed: list[int] = []
    open: int = 0
    wants: list[tuple[int, int]] = []
    said: str = ""
    silent_ms: int = SILENT_MS
    keep_ms: int = KEEP_MS


class LeaveCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="leave"):
    """A host ends; what it has claimed and not finished is anybody's."""

    host: int
    life: str
    done: list[int] = []
    failed: list[int] = []
    keep_ms: int = KEEP_MS


class ReopenCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="reopen"):
    """Nobody has a result of these cases, whatever was said: they are to be run again."""

    cases: list[int]
    keep_ms: int = KEEP_MS


Call = JoinCall | ClaimCall | LeaveCall | ReopenCall


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a host learns of a run.

    Attributes:
        host: Its number.
        n_hosts: Hosts that are heard of, itself included.
        n_done: Cases that are finished, by anybody.
        n_failed: Those of them that ended without an answer.
        n_open: Cases of all hosts whose episodes have not ended.
        elected: Whether it is the one to say that the whole run is over.
        waits_ms: For so long nobody gets a case: a server that forgot the run first hears what the
            hosts still have.
        unclaimed: Cases by model that nobody has claimed.
        given: Cases that are this host's from now on.
        drained: Whether an operator wants the host to begin nothing more.
        n_lost: Cases that it held and that are somebody else's by now; known after a `JoinCall`.
    """

    host: int
    n_hosts: int
    n_done: int
    n_failed: int
    n_open: int
    elected: bool
    waits_ms: int
    unclaimed: list[int]
    given: list[int] = []
    drained: bool = False
    n_lost: int = 0

    @property
    def is_over(self) -> bool:
        """Whether no host has anything left to do, or will have if none dies."""
        return not self.n_open and not self.waits_ms and not any(self.unclaimed)


class OtherRun(msgspec.Struct, frozen=True):
    """A run of that name goes on with something else: its identity, as JSON text."""

    identity: str


class SameName(msgspec.Struct, frozen=True):
    """A host of that name is there, heard of so long ago."""

    silent_ms: int


class Unknown(msgspec.Struct, frozen=True):
    """The server knows nothing (any more) of the host: it has to join again."""


class Reopened(msgspec.Struct, frozen=True):
    """So many cases were done and are anybody's again."""

    n: int


Answer = Claimed | OtherRun | SameName | Unknown | Reopened


def read_answer(said: Sequence[Any]) -> Answer | None:
    """What the script answered; None after a `LeaveCall`.

    Raises:
        ValueError: It is not what the script says.
    """
    match said:
        case [b"ok", int(host), int(n_hosts), int(n_done), int(n_failed), int(n_open), *rest]:
            elected, waits_ms, unclaimed, given, drained, *n_lost = rest
            return Claimed(
                host=host,
                n_hosts=n_hosts,
                n_done=n_done,
                n_failed=n_failed,
                n_open=n_open,
                elected=bool(elected),
                waits_ms=waits_ms,
                unclaimed=unclaimed,
                given=given,
                drained=bool(drained),
                n_lost=n_lost[0] if n_lost else 0,
            )
        case [b"other", bytes(identity)]:
            return OtherRun(identity.decode(errors="replace"))
        case [b"same name", int(silent_ms)]:
            return SameName(silent_ms)
        case [b"unknown"]:
            return Unknown()
        case [b"reopened", int(n)]:
            return Reopened(n)
        case [b"left"]:
            return None
    msg = f"the server's script answered {said!r:.200}"
    raise ValueError(msg)


@dataclass(slots=True)
class _Host:
    name: str
    life: str
    seen_ms: int
    open: int = 0
    seq: int = -1
    given: list[int] = field(default_factory=list)


class ClaimBook:
    """One run's claims as a model: the same calls at the same times give the script's answers.

    Always: a case is claimed by one host at most; one that is done is claimed by nobody who asks
    from then on; each case is unclaimed, claimed or done.
    """

    def __init__(self) -> None:
        self.identity: str | None = None
        self.models: list[tuple[int, int]] = []
        self.hosts: dict[int, _Host] = {}
        self.claims: dict[int, int] = {}
        self.back: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self._cursors: list[int] = []
        self._next = 0
        self._opens_ms = 0
        self._elected: int | None = None

    def call(self, call: Call, now_ms: int) -> Answer | None:
        """Carry out a call at a time of the server's clock, in milliseconds."""
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
        host.seen_ms = now_ms
        self._forget_silent(now_ms, call.silent_ms)
        if host.seq != call.seq:
            self._finish(call.done, self.failed.discard)
            self._finish(call.failed, self.failed.add)
            given: list[int] = []
            if self._opens_ms <= now_ms:
                for model, n in call.wants:
                    given += self._give(call.host, model, n)
            host.open, host.seq, host.given = call.open + len(given), call.seq, given
        return self._answer(call.host, now_ms, host.given)

    def _join(self, call: JoinCall, now_ms: int) -> Answer:
        self._forget_silent(now_ms, call.silent_ms)
        if self.identity is not None and self.identity != call.identity:
            return OtherRun(self.identity)
        for number, other in list(self.hosts.items()):
            if other.name == call.name:
                if other.life != call.life:
                    return SameName(now_ms - other.seen_ms)
                self._release(number)
        if self.identity is None:
            self.claims, self.back, self.done, self.failed = {}, set(), set(), set()
            self.identity, self.models = call.identity, list(call.models)
            self._cursors = [first for first, _ in call.models]
            self._opens_ms = now_ms + call.silent_ms if call.comes_back else 0
        self._next += 1
        host = self.hosts[self._next] = _Host(call.name, call.life, now_ms)
        self._finish(call.done, self.failed.discard)
        self._finish(call.failed, self.failed.add)
        again = [case for case in call.holding if case not in self.done and case not in self.claims]
        self.back.difference_update(again)
        self.claims.update(dict.fromkeys(again, self._next))
        host.open = len(call.holding)
        is_over = not any(self._unclaimed()) and not any(one.open for one in self.hosts.values())
        if not call.comes_back and is_over and len(self.hosts) == 1:
            self.back |= self.failed
            self.done -= self.failed
            self.failed.clear()
        answer = self._answer(self._next, now_ms, [])
        return msgspec.structs.replace(answer, n_lost=len(call.holding) - len(again))

    def _answer(self, number: int, now_ms: int, given: Sequence[int]) -> Claimed:
        said = Claimed(
            host=number,
            n_hosts=len(self.hosts),
            n_done=len(self.done),
            n_failed=len(self.failed),
            n_open=sum(one.open for one in self.hosts.values()),
            elected=False,
            waits_ms=max(0, self._opens_ms - now_ms),
            unclaimed=self._unclaimed(),
            given=list(given),
        )
        self._elected = (self._elected or number) if said.is_over else None
        return msgspec.structs.replace(said, elected=self._elected == number)

    def _unclaimed(self) -> list[int]:
        return [
            last - cursor + sum(first <= case < last for case in self.back)
            for (first, last), cursor in zip(self.models, self._cursors, strict=True)
        ]

    def _give(self, number: int, model: int, n: int) -> list[int]:
        first, last = self.models[model]
        given = sorted(case for case in self.back if first <= case < last)[:n]
        self.back.difference_update(given)
        at = self._cursors[model]
        while len(given) < n and at < last:
            if at not in self.done and at not in self.claims and at not in given:
                given.append(at)
            at += 1
        self._cursors[model] = at
        self.claims.update(dict.fromkeys(given, number))
        return given

    def _finish(self, cases: Iterable[int], mark: Callable[[int], object]) -> None:
        for case in cases:
            self.claims.pop(case, None)
            self.back.discard(case)
            # An answer counts whenever it comes; none, only where there is none.
            if case not in self.done or mark == self.failed.discard:
                mark(case)
            self.done.add(case)

    def _forget_silent(self, now_ms: int, silent_ms: int) -> None:
        for number, host in list(self.hosts.items()):
            if host.seen_ms <= now_ms - silent_ms:
                self._release(number)

    def _release(self, number: int) -> None:
        cases = [case for case, owner in self.claims.items() if owner == number]
        for case in cases:
            del self.claims[case]
        self.back.update(cases)
        del self.hosts[number]
