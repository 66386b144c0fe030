"""A run of several hosts as one of them shows it: how far all are, what this one may send; pure.

A host without a share of a limit sends nothing, by design: a small limit goes to few hosts. Whoever
looks at its screen must see that, and what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.broker.protocol import BrokerStatus, ShareStatus
    from pytest_ultrapar.pool.model import Lane, Limit

_LONGEST = 120
"""Of what a server said of itself, within a line."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """What a host knows of the run that it shares with others.

    Attributes:
        n_hosts: Hosts that are heard of, this one included.
        n_cases: All cases.
        n_done: Those that are finished, by any host.
        n_open: Those under way on any host.
        unclaimed: Those that no host has claimed, by model.
        in_groups: Whether groups rule the order of cases, so that models may wait for each other.
        n_claimed: Those that this host ever claimed.
        hears_first: Whether nobody gets a case yet: a server that forgot the run hears first what
            hosts still have.
        drained: Whether an operator wants this host to begin nothing more.
    """

    n_hosts: int
    n_cases: int
    n_done: int
    n_open: int
    unclaimed: Mapping[str, int]
    in_groups: bool = False
    n_claimed: int = 0
    hears_first: bool = False
    drained: bool = False

    @property
    def n_left(self) -> int:
        """Cases that no host has claimed."""
        return sum(self.unclaimed.values())


class HostPart(NamedTuple):
    """Whose part of which run a host's results are.

    Attributes:
        host: The host's name.
        run: The run's.
        n_cases: Cases of the whole run.
    """

    host: str
    run: str
    n_cases: int


def share_words(shares: Sequence[ShareStatus], limits: Mapping[str, Limit]) -> str:
    """This host's part in a few words: `share 3 of 10 workers, 8 of 16 qps`; empty: none is known.

    Of each kind the limits of one level are added up: of that which allows least in all, since it
    is what binds. What is counted over days is left out: hosts have only the next little of it.

    Args:
        shares: What the host was told of each limit.
        limits: Of the pool, by name.
    """
    sums: dict[str, dict[str, tuple[float, float]]] = {}
    for one in shares:
        kind, limit = LIMIT_KINDS.get(one.word), limits.get(one.limit)
        if kind is None or limit is None or kind.is_daily:
            continue
        levels = sums.setdefault(one.word, {})
        share, whole = levels.get(limit.level, (0.0, 0.0))
        levels[limit.level] = (share + one.share, whole + one.whole)
    parts = []
    for word in LIMIT_KINDS:
        if word in sums:
            share, whole = min(sums[word].values(), key=lambda sum_of: sum_of[1])
            parts.append(f"{_number(share)} of {_number(whole)} {word}")
    return f"share {', '.join(parts)}" if parts else ""


def joined_words(
    whole: WholeRun,
    part: HostPart,
    server: str,
    shares: Sequence[ShareStatus],
    limits: Mapping[str, Limit],
) -> list[str]:
    """What a host says when it has joined: where it is, how far all are, what it may send.

    Args:
        whole: What is known of the run.
        part: Which host of which run.
        server: Where the run is kept.
        shares: What the host was told of each limit; empty: nothing yet.
        limits: Of the pool, by name.
    """
    others = whole.n_hosts - 1
    beside = f"with {counted(others, 'other host')}" if others else "the only host so far"
    lines = [
        f"host {part.host} of run {part.run} on {server}, {beside}: {whole.n_done:,} of "
        f"{counted(part.n_cases, 'case')} done"
    ]
    own = ""
    if shares and not any(one.share for one in shares):
        own = " has no share of them yet"
    elif shares:
        words = share_words(shares, limits)
        own = f"'s {words}" if words else ""
    elif limits:
        own = " gets its share of them in some seconds"
    return [*lines, f"limits are those of all hosts together; this host{own}"] if own else lines


def seconds_left(n_left: int, per_s: float, models: Iterable[tuple[int, float]]) -> float:
    """Seconds until all cases of a run are done, if each model goes on at its pace.

    Args:
        n_left: Cases that are not done.
        per_s: Cases that end per second; above 0.
        models: Of each model whose pace is known, its cases that no host has claimed, and how many
            are claimed per second; above 0. The slow ones decide when all is done.
    """
    return max(n_left / per_s, *(n / claimed_per_s for n, claimed_per_s in models), 0.0)


def waits_words(whole: WholeRun, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Why this host sends nothing, though the run goes on; empty where it sends, or soon will.

    Args:
        whole: What is known of the run.
        status: What the broker says.
        lanes: All of the run.
    """
    if status.trouble:
        return f"waits: {status.trouble:.{_LONGEST}}"
    if whole.hears_first:
        return "waits: the server forgot the run, and hears first what hosts still have"
    if status.in_flight:
        return ""
    if whole.drained:
        return "drained: it begins nothing more"
    if whole.n_done >= whole.n_cases:
        return ""
    if _has_begun_all(whole, status):
        return f"waits: nothing left to begin, {whole.n_open:,} under way on other hosts"
    if not status.shares:
        return "waits: its first share of the limits" if status.room is not None else ""
    return _waits_for_share(whole, status, lanes)


def closed_words(whole: WholeRun, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Which limits are closed, where that is why nothing can be sent; else empty.

    Args:
        whole: What is known of the run.
        status: What the broker says.
        lanes: All of the run.
    """
    if status.in_flight or whole.n_done >= whole.n_cases or _has_begun_all(whole, status):
        return ""
    barring = _barring(whole, status, lanes)
    if not barring or not all(one.closed for one in barring):
        return ""
    more = f" and {counted(len(barring) - 1, 'more limit')} are" if barring[1:] else " is"
    return f"{barring[0].limit}'s {barring[0].word}{more} closed"


def _has_begun_all(whole: WholeRun, status: BrokerStatus) -> bool:
    return not whole.n_left and not status.waiting and not status.open_episodes


def _waits_for_share(whole: WholeRun, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Which limit this host has no part of, where that is true of all lanes that it needs."""
    if closed := closed_words(whole, status, lanes):
        return f"waits: {closed} until ultrapar cluster reset-day"
    barring = [one for one in _barring(whole, status, lanes) if not one.closed]
    if not barring:
        return ""
    names = [f"{one.limit}'s {one.word} = {_number(one.whole)}" for one in barring]
    n_more = len(names) - 1
    if all(one.coming > 0 for one in barring):
        return f"waits: its share of {names[0]} is on its way"
    if n_more:
        return f"waits: {names[0]} and {counted(n_more, 'more limit')} are with other hosts"
    return f"waits: {names[0]} is with other hosts"


def _barring(whole: WholeRun, status: BrokerStatus, lanes: Iterable[Lane]) -> list[ShareStatus]:
    """Limits that this host has no part of, one for each lane that it needs; none if one is free.

    Of a lane the one that is closed, or the smallest: it cannot be divided, and others follow it.
    """
    known = {lane.lane: lane for lane in status.lanes}
    shares = by_key((one.limit, one) for one in status.shares)
    wanted = {model for model, n in whole.unclaimed.items() if n}
    barring: dict[tuple[str, str], ShareStatus] = {}
    for lane in lanes:
        own = known.get(lane.lane_id)
        if own is None or own.state != "up":
            continue
        if wanted and lane.model not in wanted:
            continue
        none = [one for name in lane.limits for one in shares.get(name, ()) if one.share <= 0]
        if not none:
            return []
        first = min(none, key=lambda one: (not one.closed, one.coming > 0, one.whole))
        barring[first.limit, first.word] = first
    return list(barring.values())


def _number(value: float) -> str:
    """Whole numbers as they are, others with two digits at most after the point."""
    return f"{value:,.0f}" if value == int(value) else f"{round(value, 2):,g}"
