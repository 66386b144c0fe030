"""The protocol between hosts and the ledger of shares: how many units of a limit each host may use.

`division.lua` is the ledger, a single script of Redis or Valkey (`ledger_script.py` calls it). It
holds all rows and hosts of one installation.

Invariant, for each row at every moment: these units sum to at most the amount. First, for each
host, the larger of the units that it last reported as held and the units that it was last granted.
Second, the units that requests of dead hosts may still use. For counted rows, also the units spent
in the window.

**Time** is the ledger's own. It follows the server's time, but between two calls it advances only
as far as the caller's boot clock confirms (`SKIP_MS` there), and never backwards. A clock without a
call for `STOP_MS` confirms nothing: it may be fast, or its last call may have been slow. Time that
was not confirmed is never added later: otherwise hosts that called in the meantime would seem to
have called long ago. So a step of the server's clock frees nothing early and needs no new epoch. At
worst, units of dead hosts become free later. The same holds after a time without any host: units of
a killed run become free `longest_ms` after the next run has begun.

**Epochs.** An epoch ends when the server is another process (`run_id`), or when a host knows a
later epoch than the stored one. Then all shares are forgotten, and hosts report their units and
continue to use them. A row gives out no further units until all earlier grants are over: expiry,
plus its window or longest request. Epoch numbers are times, so that numbers of a lost life are
recognised.

**A first start** finds no stored data: it is the first, or all data was lost. If no caller
remembers an epoch (hosts store it on disk), rows open after expiry, since living hosts call before
then. When a host comes that remembers an epoch of an earlier life, rows close until windows and
longest requests are over. One case remains: the server, its data and the disks of all hosts are
lost at the same time, with requests in flight. Then a new start on another machine may be early by
the time of those requests. Closing for minutes at each first start would cost too much for that
case.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RowKind = Literal["seats", "paced", "counted"]

STOP_MS = 2_000
"""A host sends nothing when this much time of its boot clock has passed since the *start* of its
last answered call."""
EXPIRE_MS = 5_000
"""A host without a call for this time is treated as dead. It is more than twice `STOP_MS`: a host's
clock may run at half speed."""
UNHEARD_S = (EXPIRE_MS - STOP_MS) / 1000
"""Data that the provider's machine did not acknowledge for this time never arrives. So no request
of an old share arrives when another host has the share."""


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A limit that hosts share: its unit, amount and period.

    Attributes:
        name: The same on every host that shares it; the ledger does not interpret it.
        kind: `seats` are in flight. `paced` units are spent in any `window_ms`, evenly spaced.
            `counted` units are spent in any `window_ms` in any order. Each calendar day is a
            separate row, with the date in its name.
        amount: Units in all, at least 1. If hosts differ, the smallest amount applies.
        window_ms: For paced and counted rows: used units are free again after this time.
        longest_ms: For seats: the longest time that requests of a dead host can still run.
        group: Rows of one group that are too small for all hosts go to the same hosts, and
            different groups to different hosts. Use a name that they share, such as the key. Empty
            means the row's own name.
    """

    name: str
    kind: RowKind
    amount: int
    window_ms: int = 0
    longest_ms: int = 0
    group: str = ""


class RowUse(msgspec.Struct, frozen=True, array_like=True):
    """A host's report about one row.

    Attributes:
        held: Units that it holds now: its present share, or more while more is in use. It falls
            only when units are free. Seats: requests in flight. Paced: the largest share under
            which anything was sent within the last `window_ms`, and until debts are paid. Counted:
            granted units that it has not spent.
        want: Units that it could use, including `held`, at least 0. For counted rows: units that it
            could spend within some seconds, in addition to the spent ones.
        unit: The smallest useful share, at least 1: the next grant is 0 or at least this. Single
            seats are useful. With more than one, few hosts get any.
        spent: For counted rows: all units that it has spent in this incarnation, including debts.
        told: For counted rows: `RowShare.told` of the last answer, in any epoch.
    """

    held: int = 0
    want: int = 0
    unit: int = 1
    spent: int = 0
    told: int = 0


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """News from one host for all: a key, instance or lane is removed, or pauses.

    Attributes:
        name: The subject; the ledger does not interpret it. The last notice of a name holds.
        reason: Not interpreted either. A notice with an empty reason revokes the earlier one.
        for_ms: The duration from now; 0 means until the ledger is unused for a week.
        run: Only hosts of this run receive it; empty means all hosts.
    """

    name: str
    reason: str
    for_ms: int = 0
    run: str = ""


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A host's call, every half to one second.

    Attributes:
        host: Its name. If a row is too small for all hosts, names decide which hosts get it.
        incarnation: A random token for this life of the host. A new life shares nothing with the
            old one, whose units become free when it has expired.
        seq: Larger than in every earlier call of the incarnation. A call that is repeated, because
            it is unknown whether it arrived, keeps its number and gets its answer again.
        run: Name of the run; shares are first divided between runs.
        server_run_id: `run_id` of the server (`INFO server`), read when the connection was made.
        epoch: The last epoch in an answer to this host, in any run and incarnation (a host stores
            it on disk); 0 before the first.
        clock: The identity of the clock of `clock_ms`: boot id and time namespace. Hosts on one
            machine share it.
        clock_ms: CLOCK_BOOTTIME when the call was first sent.
        rows: All its limits, from the widest to the narrowest (pool, provider, key, key and model):
            if two small rows of a lane went to different hosts, the wider row decides. A row that
            is left out still holds its last reported units until the host dies, so report 0 first.
        uses: One for each row.
        lanes: For each lane that it could use, the positions in `rows` of its limits; lanes with
            the same limits once.
        answered_ms: `Answer.now_ms` of the last applied answer, in this incarnation and in epoch
            `epoch`; 0 before the first.
        peers: `Answer.peers` of that answer; 0 before the first.
        news: Notices since the last answered call. When an answer has another epoch, all notices
            that still hold.
        news_seen: `Answer.news_seen` of the last answer of the same epoch, else 0.
        leaving: Whether it holds nothing and does not come back.
        fresh: An operator confirms that these keys were not used recently: a ledger that begins
            opens immediately.
        open_days: An operator confirms, with `leaving`, that the counted rows in this call open
            with the known amounts, even if hosts are missing.
    """

    host: str
    incarnation: str
    seq: int
    run: str
    server_run_id: str
    clock: str
    clock_ms: int
    rows: tuple[RowSpec, ...]
    uses: tuple[RowUse, ...]
    lanes: tuple[tuple[int, ...], ...]
    epoch: int = 0
    answered_ms: int = 0
    peers: int = 0
    news: tuple[Notice, ...] = ()
    news_seen: int = 0
    leaving: bool = False
    fresh: bool = False
    open_days: bool = False


class RowShare(msgspec.Struct, frozen=True, array_like=True):
    """The units of a row that a host may hold from now on.

    Attributes:
        grant: Units. If it is more than `held`, the host may use them immediately. If it is less,
            the host sends no more than this allows, and reports a smaller `held` when the rest is
            free. Until then the rest counts as held.
        amount: The divided amount: the smallest that any host declares.
        target: Units that it gets when other hosts have returned units. If it is more than
            `grant`, units are on their way.
        told: For counted rows: units spent or granted in the window, over all hosts. The host
            repeats it in `RowUse.told`, so that a server that lost it knows it again. A value below
            0 means that not all is known, and at least `-1 - told` are.
        spent: For counted rows: the units in `told` that no host can spend any more.
        closed: For counted rows: whether the row gives out nothing, because hosts are missing that
            may have spent some.
    """

    grant: int
    amount: int
    target: int
    told: int = 0
    spent: int = 0
    closed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The units that a host may hold from now on. Only the answer to its latest call applies.

    It holds for `STOP_MS` by the host's boot clock, from *before* the call was first sent.

    Attributes:
        epoch: The ledger's life, which the host stores on disk. A new epoch means that the ledger
            may have lost data: no host gets more than it holds until all earlier grants are over.
        stale: Whether the call is older than another that arrived: nothing was changed, and the
            answer must not be applied.
        now_ms: The ledger's time. It never goes back, and is not faster than the hosts' clocks.
            Within an epoch, stamps of different hosts are compared by it.
        server_ms: `TIME` of the server.
        epoch_age_ms: Time since the epoch began: rows open when their expiry and window are over.
        peers: Hosts that are alive, including this one.
        news_seen: Number of the last notice.
        shares: One for each row of the call, in its order.
        news: Notices since `Renewal.news_seen`, from others and its own; `for_ms` is the time left.
    """

    epoch: int
    stale: bool
    now_ms: int
    server_ms: int
    epoch_age_ms: int
    peers: int
    news_seen: int
    shares: tuple[RowShare, ...] = ()
    news: tuple[Notice, ...] = ()
