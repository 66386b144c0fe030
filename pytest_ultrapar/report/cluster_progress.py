"""Describe a run on several hosts, as one host shows it: total progress, and the host's share.

All functions are pure.

By design, only a few hosts get a share of a small limit. A host without a share sends no
requests to which the limit applies. The screen must show this, and name the limit for which the
host is waiting.
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
"""The maximum number of characters of a server's message that a line shows."""


@dataclass(frozen=True, slots=True)
class ClusterProgress:
    """The state of a shared run, as one of its hosts knows it.

    Attributes:
        n_hosts: How many hosts are in the run, including this one.
        n_cases: How many cases the run has.
        n_done: How many cases are finished, on all hosts together.
        n_open: How many cases are in progress, on all hosts together.
        unclaimed: How many cases no host has claimed yet, by model.
        in_groups: Whether groups determine the order of cases, so that models may wait for each
            other.
        n_claimed: How many cases this host has claimed so far.
        hears_first: Whether the server has lost the run's data and is still collecting the state of
            the hosts. Until that is finished, no host gets a case.
        drained: Whether an operator has told this host to start no more cases.
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
        """How many cases no host has claimed yet."""
        return sum(self.unclaimed.values())


class HostPart(NamedTuple):
    """The host from which some results come, and the run that it is part of.

    Attributes:
        host: The host's name.
        run: The run's name.
        n_cases: How many cases the whole run has.
    """

    host: str
    run: str
    n_cases: int


def share_words(shares: Sequence[ShareStatus], limits: Mapping[str, Limit]) -> str:
    """State this host's share, as in `share 3 of 10 workers, 8 of 16 qps`; empty if unknown.

    For each kind of limit, the limits on each level (such as `key` or `instance`) are added up. The
    level with the lowest sum is shown, because it restricts the run most. Daily limits are left
    out, because hosts reserve only a small part of them in advance.

    Args:
        shares: The host's share of each limit.
        limits: The pool's limits, by name.
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
    whole: ClusterProgress,
    part: HostPart,
    server: str,
    shares: Sequence[ShareStatus],
    limits: Mapping[str, Limit],
) -> list[str]:
    """Return the lines that a host prints when it has joined: run, progress and the host's share.

    Args:
        whole: The known state of the run.
        part: The host and its run.
        server: The address of the server that stores the run.
        shares: The host's share of each limit. It is empty until the first share arrives.
        limits: The pool's limits, by name.
    """
    n_others = whole.n_hosts - 1
    others = f"with {counted(n_others, 'other host')}" if n_others else "the only host so far"
    lines = [
        f"host {part.host} of run {part.run} on {server}, {others}: {whole.n_done:,} of "
        f"{counted(part.n_cases, 'case')} done"
    ]
    own = ""
    if shares and not any(one.share for one in shares):
        own = " has no share yet"
    elif shares:
        words = share_words(shares, limits)
        own = f": {words}" if words else ""
    elif limits:
        own = " gets its share in a few seconds"
    return [*lines, f"limits apply to all hosts together; this host{own}"] if own else lines


def seconds_left(n_left: int, per_s: float, models: Iterable[tuple[int, float]]) -> float:
    """Return the seconds until all cases of a run are done if each model keeps its current pace.

    Args:
        n_left: How many cases are not done yet.
        per_s: How many cases are done per second, > 0.
        models: For each model with a known pace: how many of its cases are unclaimed, and how many
            are claimed per second (> 0). The model that needs longest determines the result, unless
            all cases together need longer.
    """
    return max(n_left / per_s, *(n / claimed_per_s for n, claimed_per_s in models), 0.0)


def waits_words(whole: ClusterProgress, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Say why this host is sending nothing; empty if it is sending, about to send or finished.

    Args:
        whole: The known state of the run.
        status: The broker's status.
        lanes: All lanes of the run.
    """
    if status.trouble:
        return f"waits: {status.trouble:.{_LONGEST}}"
    if whole.hears_first:
        return "waits: the server lost the run's data and is collecting it from all hosts again"
    if status.in_flight:
        return ""
    if whole.drained:
        return "drained: this host starts no more cases"
    if whole.n_done >= whole.n_cases:
        return ""
    if _has_begun_all(whole, status):
        return f"waits: no cases are left to start; in progress on other hosts: {whole.n_open:,}"
    if not status.shares:
        return "waits: this host has no share of the limits yet" if status.room is not None else ""
    return _waits_for_share(whole, status, lanes)


def closed_words(whole: ClusterProgress, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Name the closed limits if nothing can be sent because of them; otherwise return "".

    Args:
        whole: The known state of the run.
        status: The broker's status.
        lanes: All lanes of the run.
    """
    if status.in_flight or whole.n_done >= whole.n_cases or _has_begun_all(whole, status):
        return ""
    barring = _barring(whole, status, lanes)
    if not barring or not all(one.closed for one in barring):
        return ""
    more = f" and {counted(len(barring) - 1, 'more limit')} are" if barring[1:] else " is"
    return f"{barring[0].limit}'s {barring[0].word}{more} closed"


def _has_begun_all(whole: ClusterProgress, status: BrokerStatus) -> bool:
    return not whole.n_left and not status.waiting and not status.open_episodes


def _waits_for_share(whole: ClusterProgress, status: BrokerStatus, lanes: Iterable[Lane]) -> str:
    """Name a limit of which this host has no share, if such limits block all lanes it needs."""
    if closed := closed_words(whole, status, lanes):
        return f"waits: {closed}; to reopen, run ultrapar cluster reset-day"
    barring = [one for one in _barring(whole, status, lanes) if not one.closed]
    if not barring:
        return ""
    names = [f"{one.limit}'s {one.word} = {_number(one.whole)}" for one in barring]
    n_more = len(names) - 1
    if all(one.coming > 0 for one in barring):
        return f"waits: this host's share of {names[0]} is on its way"
    if n_more:
        return f"waits: other hosts have all of {names[0]} and of {counted(n_more, 'more limit')}"
    return f"waits: other hosts have all of {names[0]}"


def _barring(
    whole: ClusterProgress, status: BrokerStatus, lanes: Iterable[Lane]
) -> list[ShareStatus]:
    """Return, for each lane that is needed, a limit of which this host has no share.

    The result is empty if at least one of these lanes can be used. If a lane has several such
    limits, closed limits take precedence, and then limits of which no share is coming. Among the
    rest, the smallest is chosen, because it cannot be divided, and the others depend on it.
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
    """Format a number with at most two decimals."""
    return f"{value:,.0f}" if value == int(value) else f"{round(value, 2):,g}"
