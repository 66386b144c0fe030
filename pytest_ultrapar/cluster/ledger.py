"""What hosts and the ledger of shares say to each other: how many units of a limit each may use.

`division.lua` is the ledger, as one script of Redis or Valkey (`script.py` calls it). It holds all
rows and hosts of one installation.

Invariant, for each row at every moment: the sum of what hosts last said they hold, or were
last granted if that is more, and of what dead hosts' requests may still use, is at most the
amount; for counted rows together with what was spent in the window.

**Time** is the ledger's own. It goes on as the server's does, but what happens between two
calls is believed only as far as the caller's boot clock agrees (`SKIP_MS` there), and never
backwards. A clock that was not heard for `STOP_MS` agrees to nothing: it may be fast, or its
last call was long on its way. What was not believed is never caught up with: whoever called in
the meantime would seem to have called long ago. So a step of the server's clock frees nothing
early and needs no new epoch; at worst units of the dead are free later. So they are after a
silence of all hosts: those of a run that was killed are free `longest_ms` after the next one
has begun.

**Epochs.** An epoch ends when the server is another process (`run_id`), and when a host was
told a later one than is stored. Then all shares are forgotten, hosts say what they hold and go
on with it, and a row gives nothing more until all that may have been granted before is over:
expiry, and its window or longest request. Numbers of epochs are times, so that those of a life
that was lost are recognised.

**A first start** finds nothing stored: nothing was there, or all was lost. If nobody who calls
remembers an epoch (hosts do so on disk), rows open after expiry: whoever lives has called by
then. As soon as a host comes that remembers one of an earlier life, rows close until windows
and longest requests are over. What that leaves open: the server, its data and the disks of all
hosts are lost at once, with requests in flight; then a new start on another machine may come
too early by what those take. To close for minutes at each first start would be too dear for
that.
"""

from __future__ import annotations

from typing import Literal

import msgspec

RowKind = Literal["seats", "paced", "counted"]

STOP_MS = 2_000
"""A host sends nothing once so much of its own boot clock went by since it *began* its last call
that was answered."""
EXPIRE_MS = 5_000
"""After so long without a call a host is taken for dead. More than twice `STOP_MS`: a host's clock
may go at half its speed."""
UNHEARD_S = (EXPIRE_MS - STOP_MS) / 1000
"""What the provider's host did not acknowledge for so long never arrives: nothing that was sent
with a part of a limit may come when others have that part."""


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A limit that hosts share: what is counted, how much of it, and for how long a use lasts.

    Attributes:
        name: The same on every host that shares it; opaque here.
        kind: `seats` are in flight; `paced` units are spent in any `window_ms`, evenly spaced;
            `counted` ones are spent in any `window_ms` in whatever order. A calendar day is a row
            of its own each, with the date in its name.
        amount: Units in all, at least 1. Where hosts differ, the smallest holds.
        window_ms: Of paced and counted rows: units that were used are free again so long after.
        longest_ms: Of seats: the longest time that requests of a dead host can still run.
        group: Rows of one group that are too small for all hosts go to the same ones, and different
            groups to different ones: name what they have in common, such as the key. Empty: the
            row's own name.
    """

    name: str
    kind: RowKind
    amount: int
    window_ms: int = 0
    longest_ms: int = 0
    group: str = ""


class RowUse(msgspec.Struct, frozen=True, array_like=True):
    """What a host says of one row.

    Attributes:
        held: Units that it holds now: its present share, or more as long as more is in use. Falls
            only when units are really free. Seats: what is in flight. Paced: the largest share
            under which anything was sent within the last `window_ms`, and until debts are paid.
            Counted: what it was granted and has not spent.
        want: Units that it could use, `held` included, at least 0. Of counted rows: those that it
            could spend within some seconds, on top of what is spent.
        unit: The smallest useful share, at least 1: the next grant is 0 or at least this. Seats are
            of use one by one: more than one says who else may have any.
        spent: Of counted rows: all that it has spent in this incarnation, debts included.
        told: Of counted rows: `RowShare.told` of the last answer, in whatever epoch.
    """

    held: int = 0
    want: int = 0
    unit: int = 1
    spent: int = 0
    told: int = 0


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """What one host learned and all must know: a key, instance or lane is removed, or pauses.

    Attributes:
        name: Of what; opaque here. The last notice of a name holds.
        reason: Opaque, too.
        for_ms: How long from now; 0 is until the ledger is unused for a week. A notice with an
            empty reason takes the earlier one of its name back.
        run: Only hosts of this run are told; empty: all.
    """

    name: str
    reason: str
    for_ms: int = 0
    run: str = ""


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says, every half to one second.

    Attributes:
        host: Its name. Where a row is too small for all, names decide who has it.
        incarnation: A random token of this life of the host. A new one shares nothing with the old:
            what that held is free when it has expired.
        seq: Larger than in every earlier call of the incarnation. A call that is sent again as it
            was (nobody knows whether it arrived) keeps its number, and is answered again.
        run: Name of the run; shares are divided between runs first.
        server_run_id: `run_id` of the server (`INFO server`), read when the connection was made.
        epoch: The last that an answer named, on this host in whatever run and incarnation (a host
            remembers it on its disk); 0 if none ever did.
        clock: Names the clock of `clock_ms`: boot id and time namespace. Hosts of one machine share
            it.
        clock_ms: CLOCK_BOOTTIME when the call was first sent.
        rows: All limits that it knows, from the widest to the narrowest (pool, provider, key, key
            and model): where two small rows of a lane went to different hosts, the wider decides.
            One that is left out still holds what it last said, until the host dies: say 0 first.
        uses: One for each row.
        lanes: For each lane that it could send on, the positions in `rows` of all limits on its
            way; lanes with the same limits once.
        answered_ms: `Answer.now_ms` of the last answer that was applied, in this incarnation and in
            epoch `epoch`; 0 before the first.
        peers: `Answer.peers` of that answer; 0 before the first.
        news: Notices since the last answered call. All that still hold, when an answer names
            another epoch.
        news_seen: `Answer.news_seen` of the last answer of the same epoch, else 0.
        leaving: It holds nothing and will not come back.
        fresh: An operator's word that nobody used these keys just now: a ledger that begins opens
            at once.
        open_days: An operator's word, with `leaving`: the counted rows named here open with what is
            known, whoever is missing.
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
    """What a host may hold of a row from now.

    Attributes:
        grant: Units. More than `held`: at once. Less: send no more than this allows, and say a
            smaller `held` when the rest is really free; until then it counts as held.
        amount: What is divided: the smallest amount that any host declares.
        target: What it will have when others have given back theirs. More than `grant`: on its way.
        told: Of counted rows: units spent or granted in the window, over all hosts; the host says
            it in `RowUse.told`, so that a server that lost it knows it again. Below 0: not all is
            known, and at least `-1 - told` are.
        spent: Of counted rows: those of them that nobody can spend any more.
        closed: Of counted rows: whether it gives nothing since hosts are missing that may have
            spent some.
    """

    grant: int
    amount: int
    target: int
    told: int = 0
    spent: int = 0
    closed: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What a host may hold from now. Only the answer to its latest call counts.

    It holds for `STOP_MS` by the host's boot clock from *before* the call was first sent.

    Attributes:
        epoch: The ledger's life: the host remembers it on its disk. Another one than before means
            that the ledger may have forgotten something: nobody gets more than it holds until all
            that may have been granted before is over.
        stale: The call is older than another that arrived: nothing was changed, and the answer
            must not be applied.
        now_ms: The ledger's time. It never goes back, and not faster than the hosts' clocks; it is
            what stamps of different hosts are compared by, within an epoch.
        server_ms: `TIME` of the server.
        epoch_age_ms: Since the epoch began: rows open when their expiry and window are over.
        peers: Hosts that are alive, this one included.
        news_seen: Number of the last notice.
        shares: One for each row of the call, in its order.
        news: Notices since `Renewal.news_seen`, of others and its own; `for_ms` is what is left.
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
