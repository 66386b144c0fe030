"""Waiting requests and the lines in which they wait; workers and the leases that they hold."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.limits import units_of
from pytest_ultrapar.broker.protocol import BUDGET
from pytest_ultrapar.broker.shares import BUDGET_ROW
from pytest_ultrapar.broker.throttles import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.budget import OpenCase
    from pytest_ultrapar.broker.groups import GroupState
    from pytest_ultrapar.broker.headroom import Headroom
    from pytest_ultrapar.broker.lanes import LaneSet, LaneState, ModelState
    from pytest_ultrapar.broker.limits import LimitState, Reserved
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.retry_budget import RetryBudget


class HeadOfLine:
    """The limits that are reserved for one request, because they have no room for it yet.

    Smaller requests behind it also wait. Otherwise, a busy limit might never have enough room for
    this request. Guarantee: all its reservations end when the request leaves its line, or when the
    line is hidden from the scheduler (`Line.unlink`). They also end before a lane with one of these
    limits is checked again. All lanes of all these limits are then checked again.
    """

    def __init__(self, changed: dict[LaneState, None]) -> None:
        """Start without reserved limits.

        Args:
            changed: Lanes that must be checked again are added to this dict.
        """
        self._changed = changed
        self._limits: list[LimitState] = []

    def keep(self, limit: LimitState, until_s: float) -> None:
        """Reserve a limit, so that it allows no request before `until_s`."""
        limit.head_of_line = self
        limit.kept_until_s = until_s
        limit.reckon()
        self._limits.append(limit)

    def free(self) -> None:
        """Release the reserved limits, so that any request can use them. Idempotent."""
        for limit in self._limits:
            # Since then, the limit may have been released and reserved for another request.
            if limit.head_of_line is self:
                limit.free()
            self._changed.update(dict.fromkeys(limit.lanes))
        self._limits.clear()


def keeps_limits(
    waiting: Waiting, lane: LaneState, changed: dict[LaneState, None], now_s: float
) -> bool:
    """Reserve the limits of a lane that have no room for this request yet.

    Returns:
        Whether there are such limits.
    """
    tokens, money = waiting.request.tokens, lane.units(waiting.request)
    late = False
    for limit in lane.metered:
        if limit.purse is not None and money > limit.purse.left:
            # Wait until an answer frees some money, or until no request is in flight.
            ready_s = math.inf
            is_share = BUDGET_ROW in limit.shares.rows
            lane.rate_label = limit.shares.label if is_share else BUDGET
        else:
            ready_s = max(
                (
                    meter.book.ready_at_s(units_of(meter.counts, tokens), now_s)
                    for meter in limit.meters
                ),
                default=now_s,
            )
        if ready_s > now_s:
            waiting.keep(limit, ready_s, changed)
            late = True
    return late


def release_unaffordable_lanes(
    waiting: Waiting, lanes: Iterable[LaneState], changed: dict[LaneState, None]
) -> None:
    """Let free lanes that lack the money for this request serve others in the meantime.

    The lanes are checked again when they get more money, and when the request no longer waits.
    """
    for lane in lanes:
        for limit in lane.metered if lane in waiting.lane_set.members else ():
            if limit.purse is not None and lane.units(waiting.request) > limit.purse.left:
                waiting.keep(limit, -math.inf, changed)


def decide_again(lanes: Iterable[LaneState]) -> None:
    """Release the reserved limits of these lanes, and any others reserved for the same requests."""
    found: list[HeadOfLine] = []
    for lane in lanes:
        # Most lanes do not count tokens.
        if lane.metered:
            found += [
                limit.head_of_line for limit in lane.metered if limit.head_of_line is not None
            ]
    for head in found:
        head.free()


@dataclass(eq=False, slots=True)
class Waiting:
    """One request that has no lease yet.

    Attributes:
        order: Its position in the order in which all requests arrived.
        opens: Whether it opens an episode.
        is_extra: Whether its episode is open, but has no place on some limit (`Places`).
        prefers: The lane that it prefers, or None.
        since_s: When it arrived.
        waits_for: The lanes whose seats it waits for.
        full_s: `LaneSet.full_s` of `waits_for` when it arrived.
        shut_s: `GroupState.shut_s` of its group when it arrived.
        line: The line in which it waits; None if it is not in a line.
        head_of_line: The limits that are reserved for it; None if none have been reserved.
        parked_s: How many seconds it waited for the retry budget before it joined a line.
        probes: If it is a probe (`RetryBudget`): the retry budget that allows it; otherwise None.
    """

    order: int
    worker: WorkerState
    request: LeaseRequest
    model: ModelState
    lane_set: LaneSet
    waits_for: LaneSet
    group: GroupState | None
    prefers: LaneState | None
    opens: bool
    is_extra: bool
    since_s: float
    full_s: float
    shut_s: float
    parked_s: float = 0.0
    probes: RetryBudget | None = None
    line: Line | None = None
    head_of_line: HeadOfLine | None = None

    def keep(self, limit: LimitState, until_s: float, changed: dict[LaneState, None]) -> None:
        """Reserve a limit for this request. For `changed`, see `HeadOfLine`."""
        if self.head_of_line is None:
            self.head_of_line = HeadOfLine(changed)
        self.head_of_line.keep(limit, until_s)

    def free_limits(self) -> None:
        """Release the limits that are reserved for it."""
        if self.head_of_line is not None:
            self.head_of_line.free()


@dataclass(eq=False, repr=False)
class Line:
    """Requests that the same lanes can serve under the same rules, first come, first served.

    It uses an `OrderedDict`, because a plain dict walks over all removed entries to find its first
    entry.

    Attributes:
        worker: The worker whose opening requests wait here; None for a line of follow-ups,
            which all workers share.
        prefers: The lane that its follow-ups prefer; None if any lane may serve them, and for
            opening requests.
        is_extra: Whether its requests belong to cases without a place (`Places`).
        is_linked: Whether the scheduler sees it. A line of opening requests is hidden while their
            group cannot open more episodes.
    """

    model: ModelState
    lane_set: LaneSet
    worker: WorkerState | None = None
    group: GroupState | None = None
    prefers: LaneState | None = None
    is_extra: bool = False
    is_linked: bool = field(default=False, init=False)
    _queue: OrderedDict[int, Waiting] = field(default_factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Waiting:
        """The request that has waited longest. The line must not be empty."""
        return next(iter(self._queue.values()))

    def requests(self) -> list[Waiting]:
        """All requests in the line, in order of arrival."""
        return list(self._queue.values())

    def join(self, waiting: Waiting) -> None:
        """Add a request at the end of the line."""
        self._queue[waiting.order] = waiting
        waiting.line = self
        waiting.worker.waiting[waiting.request.request_id] = waiting
        if self.worker is None:
            self.model.n_follow_ups += 1
        if self.is_linked:
            self.model.n_waiting += 1
        elif len(self._queue) == 1:
            self._appear()

    def leave(self, waiting: Waiting) -> None:
        """Remove a request from any position in the line."""
        del self._queue[waiting.order]
        waiting.line = None
        waiting.free_limits()
        del waiting.worker.waiting[waiting.request.request_id]
        if self.worker is None:
            self.model.n_follow_ups -= 1
        if self.is_linked:
            self.model.n_waiting -= 1
        if not self._queue:
            self._vanish()

    def link(self) -> None:
        """Show the line to the scheduler."""
        if self.is_linked:
            return
        self.is_linked = True
        self.model.n_waiting += len(self._queue)
        if self.worker is not None:
            self.worker.linked.setdefault(self.model, {})[self] = None

    def unlink(self) -> None:
        """Hide the line from the scheduler."""
        if not self.is_linked:
            return
        self.is_linked = False
        self.model.n_waiting -= len(self._queue)
        if self._queue:
            # Only the first request of a line can have reserved limits.
            self.first.free_limits()
        if self.worker is not None:
            lines = self.worker.linked[self.model]
            del lines[self]
            if not lines:
                del self.worker.linked[self.model]

    def _appear(self) -> None:
        if self.worker is None:
            self.lane_set.follow_up_lines[self.prefers, self.is_extra] = self
        else:
            self.lane_set.opening_lines[self] = None
        if self.group is not None:
            self.group.lines[self] = None
        if self.group is None or self.group.admits:
            self.link()

    def _vanish(self) -> None:
        self.unlink()
        if self.worker is None:
            del self.lane_set.follow_up_lines[self.prefers, self.is_extra]
        else:
            del self.lane_set.opening_lines[self]
        if self.group is not None:
            del self.group.lines[self]


@dataclass(eq=False)
class WorkerState:
    """One connected worker.

    Attributes:
        home: Its home lanes; None if all lanes are its home.
        waiting: Its requests without a lease, by request id, excluding parked retries.
        parked: The retry budget that each of its parked retries is waiting for, by request id.
        leases: Its leases in use, by lease id.
        opening_lines: Its lines of opening requests, by lane set and group.
        linked: Its lines of opening requests that the scheduler sees, by model.
        open_cases: Cases whose episodes got their first lease and have not ended, with their
            groups.
        trying: Open cases that are waiting to retry a request that was refused or failed.
        has_spoken: Whether it has ever requested a lease.
    """

    name: str
    home: frozenset[LaneState] | None
    has_spoken: bool = False
    waiting: dict[int, Waiting] = field(default_factory=dict)
    parked: dict[int, RetryBudget] = field(default_factory=dict)
    leases: dict[int, HeldLease] = field(default_factory=dict)
    linked: dict[ModelState, dict[Line, None]] = field(default_factory=dict)
    opening_lines: dict[tuple[LaneSet, GroupState | None], Line] = field(default_factory=dict)
    open_cases: dict[str, GroupState | None] = field(default_factory=dict)
    trying: set[str] = field(default_factory=set)

    def open(self, case_id: str, group: GroupState | None) -> None:
        """Count an episode that gets its first lease. Idempotent. Ignores an empty case id."""
        if not case_id or case_id in self.open_cases:
            return
        self.open_cases[case_id] = group
        if group is not None:
            group.n_open += 1
            group.has_opened = True

    def is_home(self, lane: LaneState) -> bool:
        """Whether `lane` belongs to its home."""
        return self.home is None or lane in self.home


@dataclass(eq=False, slots=True)
class HeldLease:
    """One lease in use: its lane, the time of its grant, and its reservations.

    Attributes:
        made_up_s: For each headroom of its lane, `Headroom.made_up_s` at the time of the grant.
        at_grant: How many requests were in flight right after the grant, including this one, under
            the limit that the provider is assumed to enforce.
        behind_s: The seconds between the time when the send became allowed and the grant.
        late_s: The seconds between the time when the send became allowed and the actual send; 0 if
            no delay was reported.
        probes: If its request is a probe (`RetryBudget`): the retry budget; otherwise None.
        units: The units of money that are reserved for it.
        bounded: How many of the `units` are for the prompt and for bounded answers.
        n_guessed: The number of unbounded answers (`TokenBounds`).
        case: The spending of its case; None if money is not counted.
        is_check: Whether it is used to check whether its lane itself is the cause of refusals.
    """

    lane: LaneState
    request: LeaseRequest
    granted_s: float
    probes: RetryBudget | None
    made_up_s: Mapping[Headroom, float]
    at_grant: int = 0
    behind_s: float = 0.0
    late_s: float = 0.0
    reserved: Sequence[Reserved] = ()
    units: int = 0
    bounded: int = 0
    n_guessed: int = 0
    case: OpenCase | None = None
    is_check: bool = False

    def sent_late(self, late_s: float) -> None:
        """Record how long after its grant the request was sent, and postpone later sends to match.

        You may call this again with a longer delay, for example after a connection was opened.
        """
        late_s += self.behind_s
        for limit in self.lane.rated:
            limit.make_up(late_s, self.made_up_s)
        for one in self.reserved:
            if isinstance(one.reservation, Reservation):
                one.reservation.over_s += max(0.0, late_s - self.late_s)
        self.late_s = max(self.late_s, late_s)
