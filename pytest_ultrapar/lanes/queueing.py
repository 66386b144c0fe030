"""Waiting requests: who waits, in which line, and what is open."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.deferral import Deferral
    from pytest_ultrapar.lanes.groups import GroupState
    from pytest_ultrapar.lanes.lane_set import LaneSet
    from pytest_ultrapar.lanes.lane_state import LaneState, ModelState
    from pytest_ultrapar.lanes.protocol import LeaseRequest
    from pytest_ultrapar.lanes.retry_budget import RetryBudget
    from pytest_ultrapar.lanes.token_use import Reserved


class Waiting:
    """One request without a lease yet.

    Attributes:
        order: Its place among all requests ever made.
        opens: Whether it opens an episode.
        prefers: The lane it wants, None for none.
        since_s: When it came.
        clock: The lanes whose seats it waits for; `full_s`: their clock when it came; `shut_s`:
            that of its group's gate.
        line: Where it waits; None before and after.
        deferral: The limits that wait until its tokens fit; None: there never were any.
        parked_s: Seconds it waited for the retry budget before it joined a line.
        probes: The retry budget whose probe it is; None for all other requests.
    """

    __slots__ = (
        "clock",
        "deferral",
        "full_s",
        "group",
        "lane_set",
        "line",
        "model",
        "opens",
        "order",
        "parked_s",
        "prefers",
        "probes",
        "request",
        "shut_s",
        "since_s",
        "worker",
    )

    def __init__(
        self,
        *,
        order: int,
        worker: WorkerState,
        request: LeaseRequest,
        model: ModelState,
        lane_set: LaneSet,
        clock: LaneSet,
        group: GroupState | None,
        prefers: LaneState | None,
        now_s: float,
        opens: bool,
    ) -> None:
        self.order = order
        self.worker = worker
        self.request = request
        self.model = model
        self.lane_set = lane_set
        self.group = group
        self.prefers = prefers
        self.opens = opens
        self.since_s = now_s
        self.clock = clock
        self.full_s = clock.full_s(now_s)
        self.shut_s = group.shut_s(now_s) if group is not None and opens else 0.0
        self.line: Line | None = None
        self.deferral: Deferral | None = None
        self.parked_s = 0.0
        self.probes: RetryBudget | None = None

    def stop_deferring(self) -> None:
        """Let nobody wait until its tokens fit."""
        if self.deferral is not None:
            self.deferral.end()


class Line:
    """Requests that the same lanes can serve by the same rules, first come, first served.

    An `OrderedDict`, since a plain dict finds its first entry by walking over all those taken out
    before.

    Attributes:
        worker: The worker whose opens wait here; None for turns, which wait in one line for all
            workers.
        wish: The lane that turns here want; None for none, and for opens.
        is_linked: Whether the dispatcher sees it; a line of opens is not linked while its group's
            gate is shut.
    """

    __slots__ = ("_queue", "group", "is_linked", "lane_set", "model", "wish", "worker")

    def __init__(
        self,
        model: ModelState,
        lane_set: LaneSet,
        *,
        worker: WorkerState | None = None,
        group: GroupState | None = None,
        wish: LaneState | None = None,
    ) -> None:
        self.model = model
        self.lane_set = lane_set
        self.worker = worker
        self.group = group
        self.wish = wish
        self.is_linked = False
        self._queue: OrderedDict[int, Waiting] = OrderedDict()

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
            self.model.n_turns += 1
        if self.is_linked:
            self.model.n_waiting += 1
        elif len(self._queue) == 1:
            self._appear()

    def leave(self, waiting: Waiting) -> None:
        """Take a request out, wherever it stands."""
        del self._queue[waiting.order]
        waiting.line = None
        if waiting.deferral is not None:
            waiting.deferral.end()
        del waiting.worker.waiting[waiting.request.request_id]
        if self.worker is None:
            self.model.n_turns -= 1
        if self.is_linked:
            self.model.n_waiting -= 1
        if not self._queue:
            self._vanish()

    def link(self) -> None:
        """Show the line to the dispatcher."""
        if self.is_linked:
            return
        self.is_linked = True
        self.model.n_waiting += len(self._queue)
        if self.worker is not None:
            self.worker.linked.setdefault(self.model, {})[self] = None

    def unlink(self) -> None:
        """Hide the line from the dispatcher."""
        if not self.is_linked:
            return
        self.is_linked = False
        self.model.n_waiting -= len(self._queue)
        if self._queue:
            # Only the first of a line is ever tried.
            self.first.stop_deferring()
        if self.worker is not None:
            lines = self.worker.linked[self.model]
            del lines[self]
            if not lines:
                del self.worker.linked[self.model]

    def _appear(self) -> None:
        if self.worker is None:
            self.lane_set.turns[self.wish] = self
        else:
            self.lane_set.opens[self] = None
        if self.group is not None:
            self.group.lines[self] = None
        if self.group is None or self.group.admits:
            self.link()

    def _vanish(self) -> None:
        self.unlink()
        if self.worker is None:
            del self.lane_set.turns[self.wish]
        else:
            del self.lane_set.opens[self]
        if self.group is not None:
            del self.group.lines[self]


class WorkerState:
    """One connected worker.

    Attributes:
        home: Lanes it is at home on; None for all of them.
        waiting: Its requests without a lease, by request id, those that are parked left out.
        parked: Its retries that wait for a budget, by request id, and for which.
        leases: Its leases out, by lease id.
        linked: Its lines of opens that may be served now, by model.
        lines: All its lines of opens, by lane set and group.
        open_cases: Cases it has opened and not ended, with their group.
        open_unnamed: The same as counts by group for requests that name no case.
        has_spoken: Whether it has asked for a lease.
    """

    __slots__ = (
        "has_spoken",
        "home",
        "leases",
        "lines",
        "linked",
        "name",
        "open_cases",
        "open_unnamed",
        "parked",
        "waiting",
    )

    def __init__(self, name: str, home: frozenset[LaneState] | None) -> None:
        self.name = name
        self.home = home
        self.has_spoken = False
        self.waiting: dict[int, Waiting] = {}
        self.parked: dict[int, RetryBudget] = {}
        self.leases: dict[int, HeldLease] = {}
        self.linked: dict[ModelState, dict[Line, None]] = {}
        self.lines: dict[tuple[LaneSet, GroupState | None], Line] = {}
        self.open_cases: dict[str, GroupState | None] = {}
        self.open_unnamed: dict[GroupState | None, int] = {}

    def is_home(self, lane: LaneState) -> bool:
        """Whether `lane` is one of its homes."""
        return self.home is None or lane in self.home


class HeldLease:
    """One lease out: on which lane, since when, as which of those at once, and its tokens.

    Attributes:
        probes: The retry budget whose probe it is; None for all other leases.
    """

    __slots__ = ("at_grant", "granted_s", "lane", "probes", "reserved")

    def __init__(
        self, lane: LaneState, granted_s: float, at_grant: int, probes: RetryBudget | None
    ) -> None:
        self.lane = lane
        self.granted_s = granted_s
        self.at_grant = at_grant
        self.probes = probes
        self.reserved: Reserved = ()
