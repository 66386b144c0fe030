"""The protocol between hosts and the ledger, which decides how many units of a limit each may use.

The ledger is `division.lua`, a single script on Redis or Valkey, which `ledger_script.py` calls. It
stores all rows and hosts of one installation.

**Invariant.** For each row, at any time, the sum of three numbers is at most the row's amount.
First, for each host, the larger of two numbers: the units that it last reported as held, and the
units that it was last granted. Second, the units that requests of dead hosts may still use. Third,
for counted rows, the units spent in the window.

**Time.** The ledger has its own time. It follows the server's time and never goes backwards. But
between two calls it advances only as far as the caller's boot clock confirms (see `SKIP_MS` in the
script). If a host has made no call for `STOP_MS`, its clock confirms nothing: the clock may be
fast, or the last call may have been slow. Time that was not confirmed is never added later.
Otherwise, hosts that called during this time would seem to have called long ago. So a step of the
server's clock releases nothing early and needs no new epoch. At worst, units of dead hosts are
released later. The same applies after a period without any host: the units of a killed run are
released `longest_ms` after the next run has begun.

**Epochs.** An epoch ends when the server is a new process (another `run_id`), or when a host knows
a later epoch than the stored one. At that point, all shares are forgotten. Hosts report their units
and continue to use them. A row hands out no further units until all earlier grants are over: after
the expiry time plus the row's window or longest request. Epoch numbers are times. So the ledger
recognises the numbers that it used before it lost its data.

**The first start.** If there is no stored data, either this is the first start or all data was
lost. Hosts store the epoch on disk. If no caller remembers an epoch, rows open after the expiry
time, because every host that is alive calls before then. If a host calls that remembers an earlier
epoch, rows close until windows and longest requests are over. One case is not covered: the server,
its data and the disks of all hosts are lost at the same time, while requests are in flight. A new
start on another machine may then give out units that those requests still use. Preventing this
would mean closing all rows for minutes at each first start, which is too high a price.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RowKind = Literal["seats", "paced", "counted"]

STOP_MS = 2_000
"""A host stops sending when this much time has passed on its boot clock since the *start* of its
last answered call."""
EXPIRE_MS = 5_000
"""A host that makes no call for this time is treated as dead. This is more than twice `STOP_MS`,
because a host's clock may run at half speed."""
UNHEARD_S = (EXPIRE_MS - STOP_MS) / 1000
"""If the provider's machine does not acknowledge data within this time, the data is never
delivered. So no request under an old share can arrive once another host has the share."""


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A limit that hosts share: its unit, amount and period.

    Attributes:
        name: The name of the row, which is the same on every host that shares the limit. The ledger
            does not interpret it.
        kind: `seats` are requests in flight. `paced` units are spent in any `window_ms`, evenly
            spaced. `counted` units are spent in any `window_ms`, without spacing. Each calendar day
            is a separate row, with the date in its name.
        amount: The total number of units, >= 1. If hosts declare different amounts, the smallest
            one applies.
        window_ms: For paced and counted rows: how long it takes until used units are free again.
        longest_ms: For seats: how much longer the requests of a dead host may run.
        group: If the rows of one group are too small for all hosts, the same hosts get the units of
            all these rows. Rows of different groups go to different hosts. Use a name that the rows
            have in common, such as the name of the key. Empty means the row's own name.
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
        held: The units that the host holds now: its present share, or more as long as more are in
            use. The number falls only when units become free. For seats, units in use are requests
            in flight. For paced rows, they are the largest share under which anything was sent
            within the last `window_ms`; debts extend this time. For counted rows, `held` is the
            number of granted units that the host has not spent.
        want: The units that it could use, including `held`, >= 0. For counted rows: how many units
            it could spend within the next few seconds.
        unit: The smallest useful share, >= 1. The next grant is either 0 or at least this many
            units. A single seat is useful, so use 1 for seats. The larger this number is, the fewer
            hosts get any units.
        spent: For counted rows: all units that the host has spent in this incarnation, including
            debts.
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
        name: The subject of the notice, which the ledger does not interpret. If several notices
            have the same name, the last one applies.
        reason: A sentence, which the ledger does not interpret either. A notice with an empty
            reason revokes the earlier one.
        for_ms: How long the notice applies from now on; 0 means until the ledger is forgotten,
            after a week without use.
        run: Only hosts of this run receive it; empty means all hosts.
    """

    name: str
    reason: str
    for_ms: int = 0
    run: str = ""


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a host makes about once a second.

    Attributes:
        host: The host's name. If a row is too small for all hosts, their names decide which hosts
            get units.
        incarnation: A random token for this process of the host. A new process shares nothing with
            the old one. The units of the old process are released when it has expired.
        seq: The number of the call, larger than in every earlier call of the incarnation. If a call
            is repeated because it is unknown whether it arrived, it keeps its number and gets the
            same answer.
        run: The name of the run. Shares are first divided between runs.
        server_run_id: The `run_id` of the server (`INFO server`), read after connecting.
        epoch: The epoch in the last answer to this host, in any run and incarnation; 0 before the
            first answer. A host stores the epoch on disk.
        clock: The identity of the clock of `clock_ms`: boot id and time namespace. Hosts on one
            machine share it.
        clock_ms: The CLOCK_BOOTTIME at which the call was first sent.
        rows: All limits of the host, from the widest to the narrowest (pool, provider, key, key and
            model). If two small rows of a lane would go to different hosts, the wider row decides.
            If you leave a row out, its last reported units stay held until the host dies, so report
            0 first.
        uses: A report for each row.
        lanes: For each lane that the host could use, the positions of its limits in `rows`. Lanes
            with the same limits are listed once.
        answered_ms: The `Answer.now_ms` of the last applied answer, in this incarnation and in
            epoch `epoch`; 0 before the first answer.
        peers: The `Answer.peers` of that answer; 0 before the first answer.
        news: The notices since the last answered call. After an answer with another epoch: all
            notices that still apply.
        news_seen: The `Answer.news_seen` of the last answer in the same epoch; otherwise 0.
        leaving: Whether the host holds nothing and does not come back.
        fresh: Whether an operator confirms that these keys were not used recently. A new ledger
            then opens immediately.
        open_days: Whether an operator wants the counted rows in this call to open with the known
            amounts, even if hosts are missing. Only together with `leaving`.
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
        grant: The number of units. If it is more than `held`, the host may use the units
            immediately. If it is less, the host sends no more than the grant allows, and reports
            a smaller `held` when the other units are free. Until then, these count as held.
        amount: The amount that is divided: the smallest amount that any host declares.
        target: The number of units that the host gets once other hosts have returned units. If it
            is more than `grant`, the host gets further units later.
        told: For counted rows: the units spent or granted in the window, over all hosts. The host
            repeats the number in `RowUse.told`, so that a server that lost the number gets it back.
            A value below 0 means that the number is not fully known, but is at least `-1 - told`.
        spent: For counted rows: the units in `told` that no host can spend any more.
        closed: For counted rows: whether the row hands out no units, because hosts that may have
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

    The answer is valid for `STOP_MS` on the host's boot clock, counted from a time *before* the
    call was first sent.

    Attributes:
        epoch: The ledger's epoch, which the host stores on disk. A new epoch means that the ledger
            may have lost data: no host gets more than it holds until all earlier grants are over.
        stale: Whether a later call had already arrived. In this case, nothing was changed, and the
            answer must not be applied.
        now_ms: The ledger's time. It never goes backwards, and is not faster than the hosts'
            clocks. Within an epoch, times of different hosts can be compared with it.
        server_ms: The server's `TIME`.
        epoch_age_ms: The time since the epoch began. Rows open when the expiry time and their
            window have passed.
        peers: The number of hosts that are alive, including this one.
        news_seen: The number of the last notice.
        shares: A share for each row of the call, in the same order.
        news: The notices since `Renewal.news_seen`, from all hosts including this one. Here,
            `for_ms` is the time that is left.
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
