"""Decide which worker gets which case, and when. Does no I/O: `xdist_session` sends the cases."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.pool.model import Lane, Pool


LEAST_PENDING = 2
"""The minimum number of items for a worker, because it starts an item only if it also has the next
one (xdist's `WorkerInteractor.run_one_test`)."""
_SPARE = 8
"""How many cases a worker has in addition to two for each of its seats. It starts one of these
extra cases as soon as an episode ends."""
_STOLEN = 4
"""The maximum number of cases in one group that a worker takes from other workers' homes if its own
lanes have no work. A low number leaves more of these cases to the workers whose homes they are."""
_PLAIN = 4
"""The maximum number of tests without a model that a worker has at a time. pytest runs them one by
one."""
LineName = tuple[int, str, str]
"""The key of a queue: rank of the group, model, group."""


@dataclass(frozen=True, slots=True)
class DispatchItem:
    """One item to dispatch.

    Attributes:
        index: Position in pytest's collection.
        model: Name of its model; None for an item that is not a case.
        rank: Position of its group in the assignment; items with lower ranks are dispatched first.
        group: Name of its group; empty if it is in no group.
    """

    index: int
    model: str | None
    rank: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class HomeShare:
    """A worker's share of its home lanes.

    Attributes:
        models: Models that these lanes serve.
        seats: How many of the lanes' seats belong to the worker, >= 1.
    """

    models: frozenset[str]
    seats: int


class Dispatch:
    """The items that no worker has yet, and the unreported items of each worker.

    Attributes:
        n_unsent: Number of items that no worker has yet.
    """

    def __init__(
        self,
        items: Iterable[DispatchItem],
        *,
        seats_of: Mapping[str, int],
        home_of: Mapping[str, HomeShare],
    ) -> None:
        """Queue all items.

        Args:
            items: All items, in pytest's order.
            seats_of: For each model, the total number of seats on its lanes, >= 1.
            home_of: Homes by worker id. A worker that is not listed, such as a replacement, is at
                home on all lanes.
        """
        self._items: dict[int, DispatchItem] = {}
        self._seats_of = seats_of
        self._home_of = dict(home_of)
        self._plain: deque[int] = deque()
        self._lines: dict[LineName, deque[int]] = {}
        self._alone_line: deque[int] = deque()
        self._alone_workers: set[str] = set()
        self._pending: dict[str, list[int]] = {}
        # For each worker, the number of pending items of each group; None stands for items that are
        # not cases. Without it, dispatching a single case would mean going through a list of 12,000
        # cases.
        self._held: dict[str, Counter[str | None]] = {}
        self._ended: dict[str, Mapping[str, int]] = {}
        # Store this number, because xdist asks for it after every message, six times per case
        # (`DSession.loop_once`).
        self.n_unsent = 0
        self.append_items(items)

    @property
    def workers(self) -> list[str]:
        """The ids of all workers that take cases."""
        return list(self._pending)

    @property
    def wants_alone_worker(self) -> bool:
        """Whether suspects are waiting because no worker runs one episode at a time.

        Suspects are cases that may have killed a worker (`crashes`).
        """
        return bool(self._alone_line) and not self._alone_workers

    def item(self, index: int) -> DispatchItem:
        """The item at a position."""
        return self._items[index]

    def pending(self, worker: str) -> Sequence[int]:
        """The items that a worker has not reported, oldest first."""
        return self._pending.get(worker, ())

    def add_worker(
        self, worker: str, home: HomeShare | None = None, *, alone: bool = False
    ) -> None:
        """Add a worker. If `alone` is true, it runs suspects, one episode at a time."""
        self._pending[worker] = []
        self._held[worker] = Counter()
        self._ended[worker] = {}
        if home is not None:
            self._home_of[worker] = home
        if alone:
            self._alone_workers.add(worker)

    def remove_worker(self, worker: str) -> list[int]:
        """Remove a worker; return its unreported items, oldest first."""
        self._alone_workers.discard(worker)
        self._held.pop(worker, None)
        self._ended.pop(worker, None)
        return self._pending.pop(worker, [])

    def is_alone(self, worker: str) -> bool:
        """Whether a worker runs one episode at a time."""
        return worker in self._alone_workers

    def ended(self, worker: str, n_by_group: Mapping[str, int]) -> None:
        """Record, for each group, how many of a worker's ended episodes it has not reported yet."""
        self._ended[worker] = n_by_group

    def reported(self, worker: str, index: int) -> None:
        """Record that a worker has reported an item."""
        self._pending[worker].remove(index)
        self._held[worker][self._counted_as(index)] -= 1

    def append_items(self, items: Iterable[DispatchItem]) -> None:
        """Append items to the queues."""
        for item in items:
            self._items[item.index] = item
            self._line_of(item).append(item.index)
            self.n_unsent += 1

    def give_back(self, indices: Iterable[int]) -> None:
        """Put items of a dead worker back at the front of their queues."""
        for index in reversed(list(indices)):
            self._line_of(self._items[index]).appendleft(index)
            self.n_unsent += 1

    def give_back_alone(self, indices: Iterable[int]) -> None:
        """Queue suspects for a worker that runs one episode at a time."""
        for index in indices:
            self._alone_line.append(index)
            self.n_unsent += 1

    def hand_out_to_all(self) -> dict[str, list[int]]:
        """Return the items to send to each worker now, by worker id.

        Workers take turns and get one item each time. When they were sent batches instead, one of
        two workers had up to 98 requests in flight, and the other at most 2.
        """
        sent: dict[str, list[int]] = {worker: [] for worker in self._pending}
        wanting = list(self._pending)
        while wanting:
            wanting = [worker for worker in wanting if self._dispatch_one(worker, sent[worker])]
        return {worker: indices for worker, indices in sent.items() if indices}

    def hand_out(self, worker: str) -> list[int]:
        """Return the items to send to one worker now."""
        sent: list[int] = []
        while self._dispatch_one(worker, sent):
            pass
        return sent

    def _dispatch_one(self, worker: str, sent: list[int]) -> bool:
        index = self._next_for(worker)
        if index is None:
            return False
        self.n_unsent -= 1
        self._pending[worker].append(index)
        self._held[worker][self._counted_as(index)] += 1
        sent.append(index)
        return True

    def _next_for(self, worker: str) -> int | None:
        if worker in self._alone_workers:
            return self._next_alone(worker)
        home = self._home_of.get(worker)
        if self._plain and self._held[worker][None] < _PLAIN:
            return self._plain.popleft()
        seats = home.seats if home is not None else max(self._seats_of.values(), default=1)
        if self._has_work(home):
            line = self._line_for(worker, home, 2 * seats + _SPARE)
        else:
            line = self._line_for(worker, None, max(_STOLEN, LEAST_PENDING))
        return line.popleft() if line is not None else None

    def _next_alone(self, worker: str) -> int | None:
        if len(self._pending[worker]) >= LEAST_PENDING:
            return None
        if self._alone_line:
            return self._alone_line.popleft()
        if self._plain:
            return self._plain.popleft()
        line = self._line_for(worker, None, LEAST_PENDING)
        return line.popleft() if line is not None else None

    def _has_work(self, home: HomeShare | None) -> bool:
        return any(
            line and (home is None or model in home.models)
            for (_, model, _), line in self._lines.items()
        )

    def _line_for(self, worker: str, home: HomeShare | None, most: int) -> deque[int] | None:
        """Return the queue for a worker's next case: lowest rank first, then most cases per seat.

        Skip the queues of a group if the worker already has `most` open cases in that group.
        """
        best: tuple[int, float] | None = None
        chosen: deque[int] | None = None
        for (rank, model, group), line in self._lines.items():
            if not line or (home is not None and model not in home.models):
                continue
            if self._held[worker][group] - self._ended[worker].get(group, 0) >= most:
                continue
            urgency = (rank, -len(line) / self._seats_of.get(model, 1))
            if best is None or urgency < best:
                best, chosen = urgency, line
        return chosen

    def _counted_as(self, index: int) -> str | None:
        item = self._items[index]
        return None if item.model is None else item.group

    def _line_of(self, item: DispatchItem) -> deque[int]:
        if item.model is None:
            return self._plain
        return self._lines.setdefault((item.rank, item.model, item.group), deque())


MANY_SEATS = 1000
"""The number of seats to assume if seats are unlimited."""


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Sort groups so that each comes after the groups that it waits for; otherwise keep the order.

    In another order, all workers could be full of cases that are waiting for cases that no worker
    has yet.
    """
    ordered: dict[str, Group] = {}
    while len(ordered) < len(groups):
        ordered.update(
            {
                group.name: group
                for group in groups
                if group.name not in ordered and all(name in ordered for name in group.after)
            }
        )
    return list(ordered.values())


def homes(pool: Pool, lanes: Sequence[Lane], assignment: Assignment) -> dict[str, HomeShare]:
    """Return each worker's models and its share of seats, according to an assignment."""
    by_id = {lane.lane_id: lane for lane in lanes}
    sharers = Counter(tuple(home) for home in assignment.home.values())
    found: dict[str, HomeShare] = {}
    for worker, home in assignment.home.items():
        own = tuple(by_id[lane] for lane in home if lane in by_id)
        if own:
            seats = pool.seats(own) or MANY_SEATS
            share = -(-seats // sharers[tuple(home)])
            found[worker] = HomeShare(frozenset(lane.model for lane in own), share)
    return found
