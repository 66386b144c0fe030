"""Requests without a lease and in which lines they wait, workers, and the leases that they hold."""

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
    """The limits that are kept for one request whose tokens do not fit yet.

    A smaller request behind it waits as well: else it would never fit on a limit that is much used.
    Guarantee: that is over when the request no longer stands in a line that is served, and when
    something changed for a lane of such a limit; all lanes of all its limits are then looked at.
    """

    def __init__(self, changed: dict[LaneState, None]) -> None:
        """Keep nothing yet.

        Args:
            changed: Where to enter the lanes to look at again.
        """
        self._changed = changed
        self._limits: list[LimitState] = []

    def keep(self, limit: LimitState, until_s: float) -> None:
        """Let a limit serve nobody before `until_s`."""
        limit.head_of_line = self
        limit.kept_until_s = until_s
        limit.reckon()
        self._limits.append(limit)

    def free(self) -> None:
        """Let its limits serve anybody; harmless when it keeps none."""
        for limit in self._limits:
            # Its time may have come, and the limit wait for another request since.
            if limit.head_of_line is self:
                limit.free()
            self._changed.update(dict.fromkeys(limit.lanes))
        self._limits.clear()


def keeps_limits(
    waiting: Waiting, lane: LaneState, changed: dict[LaneState, None], now_s: float
) -> bool:
    """Whether the next request does not fit yet; the limits are kept until it does."""
    tokens, money = waiting.request.tokens, lane.units(waiting.request)
    late = False
    for limit in lane.metered:
        if limit.purse is not None and money > limit.purse.left:
            # Until an answer frees some, or nothing is in flight any more.
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


def passes_by(waiting: Waiting, lanes: Iterable[LaneState], changed: dict[LaneState, None]) -> None:
    """Free lanes have no money for the next request, which waits for another: they serve others.

    They are looked at again when they have more money, and when it waits no longer.
    """
    for lane in lanes:
        for limit in lane.metered if lane in waiting.lane_set.members else ():
            if limit.purse is not None and lane.units(waiting.request) > limit.purse.left:
                waiting.keep(limit, -math.inf, changed)


def decide_again(lanes: Iterable[LaneState]) -> None:
    """Free the limits of these lanes from whatever requests they are kept for."""
    found: list[HeadOfLine] = []
    for lane in lanes:
        # Most lanes count no tokens.
        if lane.metered:
            found += [
                limit.head_of_line for limit in lane.metered if limit.head_of_line is not None
            ]
    for head in found:
        head.free()


@dataclass(eq=False, slots=True)
class Waiting:
    """One request without a lease yet.

    Attributes:
        order: Its place among all requests ever made.
        opens: Whether it opens an episode; `is_extra`: whether that is open and has no place.
        prefers: The lane it wants, None for none.
        since_s: When it came.
        waits_for: The lanes whose seats it waits for; `full_s`: their clock when it came; `shut_s`:
            that of its group's gate.
        line: Where it waits; None before and after.
        head_of_line: The limits that are kept until its tokens fit; None: there never were any.
        parked_s: Seconds it waited for the retry budget before it joined a line.
        probes: The retry budget whose probe it is; None for all other requests.
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
        """As `HeadOfLine.keep`, which says what `changed` is."""
        if self.head_of_line is None:
            self.head_of_line = HeadOfLine(changed)
        self.head_of_line.keep(limit, until_s)

    def free_limits(self) -> None:
        """Let nobody wait until its tokens fit."""
        if self.head_of_line is not None:
            self.head_of_line.free()


@dataclass(eq=False, repr=False)
class Line:
    """Requests that the same lanes can serve by the same rules, first come, first served.

    An `OrderedDict`, since a plain dict finds its first entry by walking over all those taken out
    before.

    Attributes:
        worker: The worker whose opening requests wait here; None for follow-ups, which wait in one
            line for all workers.
        prefers: The lane that follow-ups here want; None for none, and for opening requests.
        is_extra: Whether they are of cases without a place.
        is_linked: Whether the scheduler sees it; a line of opening requests is not linked while its
            group's gate is shut.
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
        """The request that has waited longest; the line must not be empty."""
        return next(iter(self._queue.values()))

    def requests(self) -> list[Waiting]:
        """All requests of the line, first come first."""
        return list(self._queue.values())

    def join(self, waiting: Waiting) -> None:
        """Put a request at the end."""
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
        """Take a request out, wherever it stands."""
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
            # Only the first of a line is ever tried.
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
        home: Lanes it is at home on; None for all of them.
        waiting: Its requests without a lease, by request id, those that are parked left out.
        parked: Its retries that wait for a budget, by request id, and for which.
        leases: Its leases out, by lease id.
        opening_lines: Its lines of opening requests, by lane set and group.
        linked: Those of them that may be served now, by model.
        open_cases: Cases whose episodes have had a first lease and are not over, with their group.
        trying: Those of them of which a request waits by itself, after a refusal or a failure.
        has_spoken: Whether it has asked for a lease.
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
        """Count an episode that gets its first lease, once; one of no case is not counted."""
        if not case_id or case_id in self.open_cases:
            return
        self.open_cases[case_id] = group
        if group is not None:
            group.n_open += 1
            group.has_opened = True

    def is_home(self, lane: LaneState) -> bool:
        """Whether `lane` is one of its homes."""
        return self.home is None or lane in self.home


@dataclass(eq=False, slots=True)
class HeldLease:
    """One lease out: on which lane, since when, as which of those at once, and its tokens.

    Attributes:
        made_up_s: `Headroom.made_up_s` of each headroom of its lane when it was granted.
        at_grant: Requests that were then in flight on the limit that the provider counts by.
        behind_s: How long before the grant the time of the send was.
        late_s: How late its request was sent, as far as that was said.
        probes: The retry budget whose probe it is; None for all other leases.
        units: Money that is reserved for it; `bounded`: without what answers may cost that nothing
            bounds.
        n_guessed: How many these are.
        case: What its case takes; None where no money is counted.
        is_check: Whether a check is sent on it, which decides about its lane.
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
        """Its request was sent so long after the grant, which later sends make up for.

        It may be said more than once: when its connection had to be made, for example.
        """
        late_s += self.behind_s
        for limit in self.lane.rated:
            limit.make_up(late_s, self.made_up_s)
        for one in self.reserved:
            if isinstance(one.reservation, Reservation):
                one.reservation.over_s += max(0.0, late_s - self.late_s)
        self.late_s = max(self.late_s, late_s)
