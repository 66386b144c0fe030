"""The distribution of cases over the hosts of a run: late claims, in small numbers.

No case is assigned in advance. A host claims cases shortly before it has nothing to send, so all
hosts end together even if their speeds differ. The claims of a dead host expire. When hosts join,
they compare the facts that all must agree on.

Cases form *lines*: the cases of one model in one group of the assignment, or its free cases. A case
of a group is given out only when the group's rules allow it over all hosts. So order, locks and
numbers hold over the whole run, and a host does not need to know the cases of other hosts.

`claims.lua` does this on the server, in one call. This module has its calls and answers.
"""

from __future__ import annotations

import msgspec

SILENT_MS = 15_000
"""A host without a call for this time is treated as dead, and its cases run elsewhere. This is
longer than the expiry of its limits (`ledger`): a case that runs twice costs money, a case that
waits does not."""
KEEP_MS = 7 * 86_400_000
"""The server forgets a run without calls for a week."""
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
"""The Redis keys of the script, in its order; each follows the run's prefix."""


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a group of the assignment; groups are numbered in its order.

    A group is over when none of its cases is left to claim and all claimed episodes have ended.

    Attributes:
        lines: Its first line and the line after its last.
        after: Groups that must be over.
        start_after_ms: The delay after these groups, or else after the run's start.
        lock: Groups with the same number never run at the same time: the first in order begins,
            and keeps the lock until it is over. -1 means no lock.
        at_once: Maximum of its cases that are open at the same time. 0 is unlimited.
    """

    lines: tuple[int, int]
    after: tuple[int, ...] = ()
    start_after_ms: int = 0
    lock: int = -1
    at_once: int = 0


class JoinCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="join"):
    """A host joins, or comes back after it was treated as dead or the server forgot it.

    Attributes:
        name: The host's name; living hosts have different names.
        life: A random id; the same name with another id is another process.
        identity: The facts that all hosts must agree on, as JSON text.
        lines: For each line its first case and the case after its last.
        groups: Rules of lines; lines in no group are free.
        said: The host's text about its state, for people.
        comes_back: Whether it was here before.
        holding: Cases that it has claimed and not finished.
        done: Cases that it has finished, with a grade or an error of the suite.
        failed: Cases that it finished without an answer (`infra`).
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
    """A host reports its finished cases, and how many more it could begin.

    Attributes:
        host: The number that it got when it joined.
        seq: One higher with each call. The same call sent again does nothing and gets its answer
            again.
        done: Cases finished since the last call, with an answer.
        failed: Cases finished since the last call, without an answer.
        open: Its cases whose episodes have not ended.
        open_of: The open cases of each group that has any.
        wants: The number of further cases by line.
        said: The host's text about its state, for people.
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
    """A host ends; other hosts may claim its unfinished cases."""

    host: int
    life: str
    done: list[int] = []
    failed: list[int] = []
    keep_ms: int = KEEP_MS


class ReopenCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="reopen"):
    """An operator reopens cases that are done but have no result: they run again."""

    cases: list[int]
    keep_ms: int = KEEP_MS


Call = JoinCall | ClaimCall | LeaveCall | ReopenCall


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="ok"):
    """The state of a run for a host.

    Attributes:
        host: Its number.
        n_hosts: Hosts that are alive, including this one.
        n_done: Cases that are finished, on any host.
        n_failed: Finished cases without an answer.
        n_open: Cases of all hosts whose episodes have not ended.
        elected: Whether this host reports that the whole run is over.
        waits_ms: Time until hosts get cases: a server that forgot the run first receives the cases
            that hosts still have.
        unclaimed: Cases by line that no host has claimed.
        claimable: Unclaimed cases by line that the rules of their groups allow now.
        given: Cases that belong to this host from now on.
        drained: Whether an operator has drained the host: it begins no more cases.
        n_dead: Hosts that were ever treated as dead.
        last_dead: The name of the last dead host, which may be any text.
        lost: After a `JoinCall`: cases that it held and that other hosts have or have done by now.
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
        """Whether no host has cases left, if no host dies."""
        return not self.n_open and not self.waits_ms and not any(self.unclaimed)


class OtherRun(msgspec.Struct, frozen=True, array_like=True, tag="other"):
    """The run of that name has another identity, given as JSON text."""

    identity: str


class SameName(msgspec.Struct, frozen=True, array_like=True, tag="same name"):
    """A living host has that name; `silent_ms` is the time since its last call."""

    silent_ms: int


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag="unknown"):
    """The server does not know the host, or forgot it: the host must join again."""


class Reopened(msgspec.Struct, frozen=True, array_like=True, tag="reopened"):
    """The number of cases that were done and can be claimed again."""

    n: int


ClaimAnswer = Claimed | OtherRun | SameName | Unknown | Reopened


_decoder: msgspec.msgpack.Decoder[ClaimAnswer | None] = msgspec.msgpack.Decoder(ClaimAnswer | None)


def read_answer(said: bytes) -> ClaimAnswer | None:
    """The script's answer; None after a `LeaveCall`.

    Raises:
        ValueError, TypeError: It is not an answer of the script.
    """
    return _decoder.decode(said)
