"""The protocol between hosts and the ledger, which decides how much of a limit each host may use.

The ledger is `division.lua`, a single script that runs on Redis or Valkey. `ledger_script.py`
prepares the calls. The script stores the hosts of one installation, and a row for each limit that
they share.

**Invariant.** For each row, at any time, the sum of these units is at most the row's amount:

- for each host, the larger of two numbers: the units that it last reported as held, and the units
  that it was last granted;
- the units that requests from dead hosts may still use;
- for counted rows, the units spent in the window.

**Time.** The ledger has its own time. It follows the server's time and never goes backwards. But
between two calls, it advances by no more than the caller's boot clock confirms, plus a tolerance
(`SKIP_MS` in the script). If a host has made no call for `STOP_MS`, its clock confirms nothing. The
clock may be fast, or the last call may have been slow. Time that was not confirmed is never added
later. Otherwise, hosts that called during this time would seem to have called long ago. So if the
server's clock jumps, no units are released early, and no new epoch is needed. At worst, units of
dead hosts are released later. This also happens after a period in which no host made a call. The
units of a killed run are released `longest_ms` after the next run has begun.

**Epochs.** An epoch ends when the server is a new process (another `run_id`), or when a host knows
a later epoch than the stored one. At that point, all shares are forgotten. Hosts report the units
that they hold and continue to use them. A row hands out no further units until all earlier grants
are over. This takes the expiry time (`EXPIRE_MS`) plus the row's window or longest request. Epoch
numbers are times. So a ledger that has lost its data still recognises epochs from before the loss.

**The first start.** If there is no stored data, either this is the first start or all data was
lost. To distinguish the two, hosts store the epoch on disk. If no caller remembers an epoch, rows
open after the expiry time, because every host that is alive calls before then. If a caller
remembers an earlier epoch, rows close until windows and longest requests are over. One case is not
covered: the server, its data and the disks of all hosts are lost at the same time, while requests
are in flight. A ledger that then starts on another machine may hand out units that those requests
still use. Preventing this would mean closing all rows for minutes at each first start, which is too
high a price.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RowKind = Literal["seats", "paced", "counted"]

STOP_MS = 2_000
"""A host stops sending when this much time has passed on its boot clock since the *start* of its
last answered call."""
EXPIRE_MS = 5_000
"""A host that makes no call for this long is treated as dead. This is more than twice `STOP_MS`,
because a host's clock may run at half speed."""
UNHEARD_S = (EXPIRE_MS - STOP_MS) / 1000
"""If the provider's machine does not acknowledge data within this time, the data is never
delivered. So a request that was sent under an old share cannot arrive once another host has the
share."""


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A limit that hosts share: its unit, amount and period.

    Attributes:
        name: The name of the row, which is the same on every host that shares the limit. The ledger
            does not interpret it.
        kind: `seats`: the units are requests in flight. `paced`: units spent in any `window_ms`,
            evenly spaced. `counted`: units spent in any `window_ms`, without spacing. If a limit
            applies per calendar day, each day has its own row, with the date in its name.
        amount: The total number of units, >= 1. If hosts declare different amounts, the smallest
            one applies.
        window_ms: For paced and counted rows: how long it takes until used units are free again.
        longest_ms: For seats: how long requests may continue after their host is treated as dead.
        group: If the rows in one group are too small for all hosts, the same hosts get the units of
            all these rows. The hosts are chosen separately for each group. Use a name that the
            rows have in common, such as the name of the key. Empty means the row's own name.
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
        held: The units that the host holds now: its present share or, if these are more, the units
            in use. The number falls only when units become free. For seats, the units in use are
            the requests in flight. For paced rows, they are the largest share under which the host
            sent anything within the last `window_ms`. Requests that use more than they reserved
            extend this time. For counted rows, `held` is the number of granted units that the host
            has not spent.
        want: The units that it could use, including `held`, >= 0. For counted rows: how many units
            it could spend within the next few seconds.
        unit: The smallest useful share, >= 1. The next grant is either 0 or at least this many
            units. A single seat is useful, so use 1 for seats. The larger this number is, the fewer
            hosts get any units.
        spent: For counted rows: all units that this incarnation of the host has spent, including
            units used beyond its grants.
        told: For counted rows: `RowShare.told` from the last answer, in any epoch.
    """

    held: int = 0
    want: int = 0
    unit: int = 1
    spent: int = 0
    told: int = 0


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """News from one host for the others: a key, instance or lane is removed or paused.

    Attributes:
        name: The subject of the notice, which the ledger does not interpret. If several notices
            have the same name, the last one applies.
        reason: A text, which the ledger does not interpret either. A notice with an empty reason
            revokes the earlier notice with the same name.
        for_ms: How long the notice applies from now on. 0 means that it applies until the server
            forgets the ledger, after a week without use.
        run: The run whose hosts receive the notice; empty means all hosts.
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
        incarnation: A random token for this process of the host. A new process takes over no units
            from the old one. They are released after the old process is treated as dead.
        seq: The number of the call, larger than in every earlier call by this incarnation. If a
            call is repeated because it is unknown whether it arrived, it keeps its number and gets
            the same answer.
        run: The name of the run. A row is divided first between runs, then between their hosts.
        server_run_id: The `run_id` of the server (`INFO server`), read after connecting.
        epoch: The epoch in the last answer to this host, in any run and incarnation; 0 before the
            first answer. A host stores the epoch on disk.
        clock: The clock that `clock_ms` was read from, identified by its boot id and time
            namespace. Hosts on one machine share this clock.
        clock_ms: The value of CLOCK_BOOTTIME when the call was first sent.
        rows: All limits of the host, from the widest to the narrowest (pool, provider, key, key and
            model). If two small rows of a lane would go to different hosts, the wider row decides
            which host gets both. If you leave a row out, the units last reported for it count as
            held until the host is treated as dead. So report 0 first.
        uses: A report for each row, in the same order.
        lanes: For each lane that the host could use, the positions of its limits in `rows`. Lanes
            with the same limits are listed once.
        answered_ms: `Answer.now_ms` from the last answer that this incarnation applied, which had
            the epoch `epoch`; 0 before the first answer.
        peers: `Answer.peers` from that answer; 0 before the first answer.
        news: The notices since the last call that was answered. After an answer with a different
            epoch: all notices that still apply.
        news_seen: `Answer.news_seen` from the last answer in the same epoch; 0 before the first
            such answer.
        leaving: Whether the host holds nothing and does not come back.
        fresh: Whether an operator confirms that the API keys of these rows were not used recently.
            The rows of a new ledger then open immediately.
        open_days: Whether an operator opens the counted rows in this call with the known spent
            amounts, even if hosts that may have spent more are missing. Used only together with
            `leaving`.
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
            a smaller `held` once the other units are free. Until then, these units count as held.
        amount: The amount that is divided: the smallest amount that any host declares.
        target: The number of units that the host gets once other hosts have returned units. If it
            is more than `grant`, the host gets further units later.
        told: For counted rows: the units that all hosts together have spent or been granted in the
            window. The host repeats the number in `RowUse.told`, so that a server that lost the
            number gets it back. A value below 0 means that the number is not fully known, but is at
            least `-1 - told`.
        spent: For counted rows: the units in `told` that no host can spend any more.
        closed: For counted rows: whether the row hands out no units, because hosts that may have
            spent units of it are missing.
    """

    grant: int
    amount: int
    target: int
    told: int = 0
    spent: int = 0
    closed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The ledger's answer to a call. Only the answer to the host's latest call applies.

    The answer is valid for `STOP_MS` on the host's boot clock, counted from a time *before* the
    call was first sent.

    Attributes:
        epoch: The ledger's epoch, which the host stores on disk. A new epoch means that the ledger
            may have lost data: no host gets more than it holds until all earlier grants are over.
        stale: Whether the call came too late, because a later call had already arrived. It is also
            too late if it had arrived before, and since then a new epoch has begun or the host was
            removed. Then nothing was changed, and the answer must not be applied.
        now_ms: The ledger's time. It never goes backwards, and is not faster than the hosts'
            clocks. Within an epoch, it can be used to compare times from different hosts.
        server_ms: The server's `TIME`.
        epoch_age_ms: The time since the epoch began. A row opens at the latest when this time
            exceeds the expiry time of grants plus the row's window or longest request.
        peers: The number of hosts that are alive, including this one.
        news_seen: The number of the last notice.
        shares: A share for each row of the call, in the same order.
        news: The notices since `Renewal.news_seen`, from all hosts including this one. Here,
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
