"""Who runs which case of a run that several hosts share: late claims, in small numbers.

Nothing is dealt in advance: a host claims cases when it is about to have nothing to send, so all
hosts end together however fast each is. A host that dies gives its claims back by expiry. What all
hosts must agree on, they compare when they join.

Cases stand in *lines*: those of one model that one group of the assignment rules, or that are free.
A case of a group is given only when the group's rules allow it over all hosts: so order, locks and
numbers hold over the whole run, and a host need not know of the cases of others.

`claims.lua` does this on the server, in one call. These are its calls and answers.
"""

from __future__ import annotations

import msgspec

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
    "groups",
    "held",
)
"""Of the script, in its order; each behind the run's prefix."""


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of the assignment waits for; groups are numbered in its order.

    A group is over when none of its cases is left to be claimed and the episodes of all that were
    have ended.

    Attributes:
        lines: The first of its lines and the one behind its last.
        after: Groups that must be over.
        start_after_ms: So long after that, or else after the run's start.
        lock: Groups with the same number are never under way at once: the first in order begins,
            and keeps the lock until it is over. -1: none.
        at_once: So many of its cases are open at once at most. 0: any number.
    """

    lines: tuple[int, int]
    after: tuple[int, ...] = ()
    start_after_ms: int = 0
    lock: int = -1
    at_once: int = 0


class JoinCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="join"):
    """A host joins, or comes back after it was taken for dead or the server forgot it.

    Attributes:
        name: The host's; no two living ones have the same.
        life: Random; another one of the same name is another process.
        identity: What all hosts must agree on, as JSON text.
        lines: For each line the first of its cases and the one behind its last.
        groups: Rules of lines; lines of no group are free.
        said: What people are told of the host.
        comes_back: Whether it was here before.
        holding: Cases that it has claimed and not finished.
        done: Cases that it has finished, with a grade or an error of the suite.
        failed: Those that it finished without an answer (`infra`).
        open_of: As in `ClaimCall`.
    """

    name: str
    life: str
    identity: str
    lines: list[tuple[int, int]]
    groups: list[GroupRule] = []
    said: str = ""
    comes_back: bool = False
    holding: list[int] = []
    done: list[int] = []
    failed: list[int] = []
    open_of: list[tuple[int, int]] = []
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
        open_of: Those of each group that has any.
        wants: How many more cases of which lines.
        said: What people are told of the host.
    """

    host: int
    life: str
    seq: int
    done: list[int] = []
    failed: list[int] = []
    open: int = 0
    open_of: list[tuple[int, int]] = []
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


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="ok"):
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
        unclaimed: Cases by line that nobody has claimed.
        claimable: Those of them that the rules of their groups allow now.
        given: Cases that are this host's from now on.
        drained: Whether an operator wants the host to begin nothing more.
        n_dead: Hosts that were ever taken for dead.
        last_dead: The name of the last one; anybody may have written it.
        lost: Cases that it held and that others have, or have done, by now; after a `JoinCall`.
    """

    host: int
    n_hosts: int
    n_done: int
    n_failed: int
    n_open: int
    elected: bool
    waits_ms: int
    unclaimed: list[int]
    claimable: list[int]
    given: list[int] = []
    drained: bool = False
    n_dead: int = 0
    last_dead: str = ""
    lost: list[int] = []

    @property
    def is_over(self) -> bool:
        """Whether no host has anything left to do, or will have if none dies."""
        return not self.n_open and not self.waits_ms and not any(self.unclaimed)


class OtherRun(msgspec.Struct, frozen=True, array_like=True, tag="other"):
    """A run of that name goes on with something else: its identity, as JSON text."""

    identity: str


class SameName(msgspec.Struct, frozen=True, array_like=True, tag="same name"):
    """A host of that name is there, heard of so long ago."""

    silent_ms: int


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag="unknown"):
    """The server knows nothing (any more) of the host: it has to join again."""


class Reopened(msgspec.Struct, frozen=True, array_like=True, tag="reopened"):
    """So many cases were done and are anybody's again."""

    n: int


ClaimAnswer = Claimed | OtherRun | SameName | Unknown | Reopened


_decoder: msgspec.msgpack.Decoder[ClaimAnswer | None] = msgspec.msgpack.Decoder(ClaimAnswer | None)


def read_answer(said: bytes) -> ClaimAnswer | None:
    """What the script answered; None after a `LeaveCall`.

    Raises:
        ValueError, TypeError: It is not what the script says.
    """
    return _decoder.decode(said)
