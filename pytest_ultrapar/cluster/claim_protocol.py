"""Distribute the cases of a run over its hosts, which claim cases late and a few at a time.

No case is assigned in advance. A host claims cases shortly before it runs out of requests to send.
So all hosts finish at about the same time, even if their speeds differ. The claims of a dead host
expire. A host can only join if it agrees with the other hosts on certain facts.

Cases form *lines*. A line contains all cases of one model in one group of the assignment, or all
*free* cases of one model (cases in no group). The server hands out a case from a group only when
the group's rules allow it, and takes the cases of all hosts into account. So the rules on order,
locks and maximum numbers apply to the whole run. A host does not need to know the cases of other
hosts.

`claims.lua` does this on the server, in one call. This module defines the calls and the answers.
"""

from __future__ import annotations

import msgspec

SILENT_MS = 15_000
"""A host that makes no call for this many milliseconds is treated as dead, and its cases run
elsewhere. Its shares of limits expire sooner (see `ledger`). It keeps its cases longer than its
shares, because running a case twice costs money, and waiting does not.
"""
KEEP_MS = 7 * 86_400_000
"""The server forgets a run after a week without calls."""
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
"""The names of the script's Redis keys, in the order that the script expects. In a Redis key,
the name comes after the run's prefix."""


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a group of the assignment. Groups are numbered in the assignment's order.

    A group is over when it has no cases left to claim and the episodes of all its claimed cases
    have ended.

    Attributes:
        lines: The first line of the group, and the line after its last one.
        after: The groups that must be over before this group starts.
        start_after_ms: How long to wait after the groups in `after` are over or, if `after` is
            empty, after the start of the run.
        lock: The number of a lock; -1 means no lock. Groups with the same lock never run at the
            same time. The first of them that can start, in the assignment's order, takes the lock,
            and keeps it until the group is over.
        at_once: The maximum number of its cases that may be open at the same time; 0 means no
            maximum.
    """

    lines: tuple[int, int]
    after: tuple[int, ...] = ()
    start_after_ms: int = 0
    lock: int = -1
    at_once: int = 0


class JoinCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="join"):
    """A host joins, or comes back after it was treated as dead or forgotten by the server.

    Attributes:
        name: The host's name. No two hosts that are alive have the same name.
        life: A random id for the process. If the same name comes with a different id, it belongs to
            a different process.
        identity: The facts that all hosts must agree on, as JSON text.
        lines: For each line, its first case and the case after its last one.
        groups: The rules of the groups. The cases of all other lines are free.
        said: The host's human-readable text about its state.
        comes_back: Whether it has been in the run before.
        holding: The cases that it has claimed, but not finished.
        done: The cases that it has finished, with any outcome except `infra`.
        failed: The cases that it has finished without an answer (`infra`).
        open_of: See `ClaimCall`.
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
    """A host reports the cases that it has finished, and how many more it could begin.

    Attributes:
        host: The number that it got when it joined.
        seq: The number of the call, which increases by one each time. If a call is repeated with
            the same number, it changes nothing and gets the same cases.
        done: The cases finished with an answer since the last call.
        failed: The cases finished without an answer since the last call.
        open: How many of its cases are open, which means that their episodes have not ended.
        open_of: How many of these cases are in each group. Groups without open cases are left out.
        wants: How many further cases it could begin, by line.
        said: The host's human-readable text about its state.
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
    """A host leaves the run. Other hosts may then claim its unfinished cases."""

    host: int
    life: str
    done: list[int] = []
    failed: list[int] = []
    keep_ms: int = KEEP_MS


class ReopenCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="reopen"):
    """An operator reopens cases that are done but have no result, so that they run again."""

    cases: list[int]
    keep_ms: int = KEEP_MS


Call = JoinCall | ClaimCall | LeaveCall | ReopenCall


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="ok"):
    """The state of a run, as one host gets it in an answer.

    Attributes:
        host: The number of the host.
        n_hosts: How many hosts are alive, including this one.
        n_done: How many cases are finished, on all hosts.
        n_failed: How many of these got no answer.
        n_open: How many cases, on all hosts, have episodes that have not ended.
        elected: Whether this host was chosen to report the end of the whole run.
        waits_ms: How long hosts must wait before they get cases; usually 0. After the server has
            forgotten the run, it first lets hosts report the cases that they still have.
        unclaimed: For each line, how many cases no host has claimed yet.
        claimable: How many of these cases may be claimed now under the rules of their groups.
        given: The cases that the host may run from now on.
        drained: Whether an operator has drained the host, which then starts no more cases.
        n_dead: How many hosts have been treated as dead so far.
        last_dead: The name of the host that was treated as dead most recently. The name may
            contain any text.
        lost: After a `JoinCall`: the cases in its `holding` that other hosts have claimed or
            finished in the meantime.
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
        """Whether no host has a case left to run. This may change if a host dies."""
        return not self.n_open and not self.waits_ms and not any(self.unclaimed)


class OtherRun(msgspec.Struct, frozen=True, array_like=True, tag="other"):
    """The run with that name has a different identity: `identity`, as JSON text."""

    identity: str


class SameName(msgspec.Struct, frozen=True, array_like=True, tag="same name"):
    """Another host that is alive has that name; its last call was `silent_ms` ago."""

    silent_ms: int


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag="unknown"):
    """The server does not know the host or has forgotten it, so the host must join again."""


class Reopened(msgspec.Struct, frozen=True, array_like=True, tag="reopened"):
    """The number of cases that were done and can now be claimed again."""

    n: int


ClaimAnswer = Claimed | OtherRun | SameName | Unknown | Reopened


_decoder: msgspec.msgpack.Decoder[ClaimAnswer | None] = msgspec.msgpack.Decoder(ClaimAnswer | None)


def read_answer(said: bytes) -> ClaimAnswer | None:
    """Decode the script's answer; None after a `LeaveCall`.

    Raises:
        ValueError, TypeError: It is not an answer from the script.
    """
    return _decoder.decode(said)
