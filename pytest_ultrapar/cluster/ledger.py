"""The protocol between hosts and the ledger of shares: how many units of a limit each host may use.

The ledger is `division.lua`, a single script on Redis or Valkey, which `ledger_script.py` calls. It
stores all rows and hosts of one installation.

**Invariant.** For each row, at any time, the sum of the following units is not more than the
amount. First, for each host, the larger of two numbers: the units that it last reported as held,
and the units of its last grant. Second, the units that requests of dead hosts may still use. Third,
for counted rows, the units spent in the window.

**Time.** The ledger has its own time. It follows the server's time, but between two calls it
advances only as far as the caller's boot clock confirms (`SKIP_MS` there), and never goes
backwards. A clock that made no call for `STOP_MS` confirms nothing: it may be fast, or its last
call may have been slow. Time that was not confirmed is never added later. Otherwise, hosts that
called in the meantime would seem to have called long ago. So a step of the server's clock releases
nothing early and needs no new epoch. At worst, units of dead hosts are released later. The same
applies after a time without any host: the units of a killed run are released `longest_ms` after the
next run has begun.

**Epochs.** An epoch ends when the server is a new process (another `run_id`), or when a host knows
a later epoch than the stored one. Then all shares are forgotten. Hosts report their units and
continue to use them. A row gives out no further units until all earlier grants are over, that is,
after the expiry plus the row's window or longest request. Epoch numbers are times, so that the
ledger recognises numbers from before it lost its data.

**The first start.** If there is no stored data, this is the first start, or all data was lost. If
no caller remembers an epoch (hosts store it on disk), rows open after the expiry time, because
hosts that are alive call before then. If a host that remembers an earlier epoch calls, rows close
until windows and longest requests are over. One case is not covered: the server, its data and the
disks of all hosts are lost at the same time, while requests are in flight. A new start on another
machine may then give out units that those requests still use. Preventing this would mean closing
all rows for minutes at each first start, which is too high a price.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RowKind = Literal["seats", "paced", "counted"]

STOP_MS = 2_000
"""A host sends nothing once this much time has passed on its boot clock since the *start* of its
last answered call."""
EXPIRE_MS = 5_000
"""A host that makes no call for this time is treated as dead. This is more than twice `STOP_MS`,
because a host's clock may run at half speed."""
UNHEARD_S = (EXPIRE_MS - STOP_MS) / 1000
"""If the provider's machine does not acknowledge data within this time, the data never arrives. So
no request of an old share can arrive when another host has the share."""


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A limit that hosts share: its unit, amount and period.

    Attributes:
        name: The same on every host that shares the limit. The ledger does not interpret it.
        kind: `seats` are requests in flight. `paced` units are spent in any `window_ms`, evenly
            spaced. `counted` units are spent in any `window_ms`, at any time. Each calendar day is
            a separate row, with the date in its name.
        amount: The total number of units, >= 1. If hosts differ, the smallest amount applies.
        window_ms: For paced and counted rows: how long it takes until used units are free again.
        longest_ms: For seats: how long requests of a dead host may still run.
        group: If rows of one group are too small for all hosts, the same hosts get their units.
            Rows of different groups go to different hosts. Use a name that the rows share, such as
            the key. Empty means the row's own name.
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
        held: The units that it holds now: its present share, or more while more are in use. The
            number falls only when units become free. For seats, it counts the requests in flight.
            For paced rows, it is the largest share under which anything was sent within the last
            `window_ms`, or longer until debts are paid. For counted rows, it is the granted units
            that it has not spent.
        want: The units that it could use, including `held`, >= 0. For counted rows: the units that
            it could spend within a few seconds, in addition to those already spent.
        unit: The smallest useful share, >= 1. The next grant is either 0 or at least this. A single
            seat is useful, so 1 is right for seats. The larger this number is, the fewer hosts get
            any units.
        spent: For counted rows: all units that it has spent in this incarnation, including debts.
        told: For counted rows: `RowShare.told` of the last answer, in any epoch.
    """

    held: int = 0
    want: int = 0
    unit: int = 1
    spent: int = 0
    told: int = 0


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """News from one host for all others: a key, instance or lane is removed or paused.

    Attributes:
        name: The subject, which the ledger does not interpret. If several notices have the same
            name, the last one applies.
        reason: A sentence, which the ledger does not interpret either. A notice with an empty
            reason revokes the earlier one.
        for_ms: How long the notice applies from now on; 0 means until the ledger has not been used
            for a week.
        run: Only hosts of this run receive it; empty means all hosts.
    """

    name: str
    reason: str
    for_ms: int = 0
    run: str = ""


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A host's call, every half to one second.

    Attributes:
        host: The host's name. If a row is too small for all hosts, their names decide which hosts
            get units.
        incarnation: A random token for this process of the host. A new process shares nothing with
            the old one, whose units are released when it has expired.
        seq: Larger than in every earlier call of the incarnation. If a call is repeated because it
            is unknown whether it arrived, it has the same number and gets the same answer.
        run: The name of the run. Shares are first divided between runs.
        server_run_id: The `run_id` of the server (`INFO server`), read after connecting.
        epoch: The last epoch in an answer to this host, in any run and incarnation (a host stores
            it on disk); 0 before the first answer.
        clock: The identity of the clock of `clock_ms`: boot id and time namespace. Hosts on one
            machine share it.
        clock_ms: The CLOCK_BOOTTIME at which the call was first sent.
        rows: All limits of the host, from the widest to the narrowest (pool, provider, key, key and
            model). If two small rows of a lane went to different hosts, the wider row decides. A
            row that is left out still holds its last reported units until the host dies, so report
            0 first.
        uses: A report for each row.
        lanes: For each lane that the host could use, the positions of its limits in `rows`. Lanes
            with the same limits are listed once.
        answered_ms: The `Answer.now_ms` of the last applied answer, in this incarnation and in
            epoch `epoch`; 0 before the first answer.
        peers: The `Answer.peers` of that answer; 0 before the first answer.
        news: The notices since the last answered call. If an answer has another epoch, all notices
            that still apply.
        news_seen: The `Answer.news_seen` of the last answer in the same epoch; otherwise 0.
        leaving: Whether the host holds nothing and does not come back.
        fresh: Whether an operator confirms that these keys were not used recently, so that a new
            ledger opens immediately.
        open_days: Whether an operator confirms, together with `leaving`, that the counted rows in
            this call open with the known amounts, even if hosts are missing.
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
        grant: The number of units. If it is more than `held`, the host may use them immediately. If
            it is less, the host sends no more than this allows, and reports a smaller `held` when
            the rest is free. Until then the rest counts as held.
        amount: The amount that is divided: the smallest that any host declares.
        target: The number of units that the host gets once other hosts have returned units. If it
            is more than `grant`, units are on their way.
        told: For counted rows: the units spent or granted in the window, over all hosts. The host
            repeats the number in `RowUse.told`, so that a server that lost it gets it back. A value
            below 0 means that the number is not fully known, but is at least `-1 - told`.
        spent: For counted rows: the units in `told` that no host can spend any more.
        closed: For counted rows: whether the row gives out no units, because hosts that may have
            spent some are missing.
    """

    grant: int
    amount: int
    target: int
    told: int = 0
    spent: int = 0
    closed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The units that a host may hold from now on. Only the answer to its latest call applies.

    It is valid for `STOP_MS` on the host's boot clock, from *before* the call was first sent.

    Attributes:
        epoch: The ledger's epoch, which the host stores on disk. A new epoch means that the ledger
            may have lost data: no host gets more than it holds until all earlier grants are over.
        stale: Whether another call, made later, had already arrived. If so, nothing was changed,
            and the answer must not be applied.
        now_ms: The ledger's time. It never goes back, and is not faster than the hosts' clocks.
            Within an epoch, it makes times of different hosts comparable.
        server_ms: The server's `TIME`.
        epoch_age_ms: The time since the epoch began. Rows open when expiry and window are over.
        peers: The number of hosts that are alive, including this one.
        news_seen: The number of the last notice.
        shares: A share for each row of the call, in the same order.
        news: The notices since `Renewal.news_seen`, from other hosts and from this one. Here,
            `for_ms` is the time left.
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
