"""Which worker is given which case, and when: pure; `controller` has xdist carry it out."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.pool.model import Lane, Pool


LEAST_PENDING = 2
"""An xdist worker starts item A only when it holds item B (`WorkerInteractor.run_one_test`)."""
_SPARE = 8
"""Cases that a worker has beyond twice its seats, so that one is there when an episode ends."""
_STOLEN = 4
"""Cases of a group that a worker has at most where nothing is left for its own lanes: the fewer it
takes from others, the more their owners keep."""
_PLAIN = 4
"""Tests that are no cases, of which pytest runs one at a time."""
LineName = tuple[int, str, str]
"""(rank of the group, model, group)."""


@dataclass(frozen=True, slots=True)
class DispatchItem:
    """A case as dispatch sees it.

    Attributes:
        index: Position in pytest's collection.
        model: Which lanes can serve it; None for an item that is no case.
        rank: Place of its group in the assignment; lower ones go out first.
        group: Name of its group; empty for none.
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
        seats: How many of their seats are the worker's, >= 1.
    """

    models: frozenset[str]
    seats: int


class Dispatch:
    """Cases not yet given to a worker, and what each worker has been given and not reported.

    Attributes:
        n_unsent: Items that no worker has been given.
    """

    def __init__(
        self,
        items: Iterable[DispatchItem],
        *,
        seats_of: Mapping[str, int],
        home_of: Mapping[str, HomeShare],
    ) -> None:
        """Line everything up.

        Args:
            items: All items, in pytest's order.
            seats_of: Seats over all lanes of a model, >= 1.
            home_of: By worker id; a worker that is missing (a replacement, say) is at home
                everywhere.
        """
        self._items: dict[int, DispatchItem] = {}
        self._seats_of = seats_of
        self._home_of = dict(home_of)
        self._plain: deque[int] = deque()
        self._lines: dict[LineName, deque[int]] = {}
        self._alone_line: deque[int] = deque()
        self._alone_workers: set[str] = set()
        self._pending: dict[str, list[int]] = {}
        # How much of that is of each group, None for items that are no cases: 12,000 cases over two
        # workers are no lists to count anew for every case.
        self._held: dict[str, Counter[str | None]] = {}
        self._ended: dict[str, Mapping[str, int]] = {}
        # xdist asks after each of six messages per case whether any is left (`DSession.loop_once`).
        self.n_unsent = 0
        self.line_up(items)

    @property
    def workers(self) -> list[str]:
        """Workers that take cases."""
        return list(self._pending)

    @property
    def wants_alone_worker(self) -> bool:
        """Whether suspects wait that must run alone, and no worker runs alone."""
        return bool(self._alone_line) and not self._alone_workers

    def item(self, index: int) -> DispatchItem:
        """One that was lined up."""
        return self._items[index]

    def pending(self, worker: str) -> Sequence[int]:
        """What a worker has been given and not reported, oldest first."""
        return self._pending.get(worker, ())

    def add_worker(
        self, worker: str, home: HomeShare | None = None, *, alone: bool = False
    ) -> None:
        """A worker is ready for cases; those `alone` run one episode at a time: the suspects."""
        self._pending[worker] = []
        self._held[worker] = Counter()
        self._ended[worker] = {}
        if home is not None:
            self._home_of[worker] = home
        if alone:
            self._alone_workers.add(worker)

    def remove_worker(self, worker: str) -> list[int]:
        """A worker is gone; returns what it had not reported, oldest first."""
        self._alone_workers.discard(worker)
        self._held.pop(worker, None)
        self._ended.pop(worker, None)
        return self._pending.pop(worker, [])

    def is_alone(self, worker: str) -> bool:
        """Whether a worker runs one episode at a time."""
        return worker in self._alone_workers

    def ended(self, worker: str, n_by_group: Mapping[str, int]) -> None:
        """A worker said how many cases of each group wait for their report, episodes ended."""
        self._ended[worker] = n_by_group

    def reported(self, worker: str, index: int) -> None:
        """A worker has reported an item."""
        self._pending[worker].remove(index)
        self._held[worker][self._counted_as(index)] -= 1

    def line_up(self, items: Iterable[DispatchItem]) -> None:
        """Take further items, behind all others."""
        for item in items:
            self._items[item.index] = item
            self._line_of(item).append(item.index)
            self.n_unsent += 1

    def give_back(self, indices: Iterable[int]) -> None:
        """Put items of a dead worker first in line again."""
        for index in reversed(list(indices)):
            self._line_of(self._items[index]).appendleft(index)
            self.n_unsent += 1

    def give_back_alone(self, indices: Iterable[int]) -> None:
        """Put suspects in line for a worker that runs one episode at a time."""
        for index in indices:
            self._alone_line.append(index)
            self.n_unsent += 1

    def hand_out_to_all(self) -> dict[str, list[int]]:
        """What to send to each worker now; dealt one by one in turn, so that no worker is favoured.

        Dealing whole heaps gave peaks of 98 and 2 requests in flight on two workers.
        """
        sent: dict[str, list[int]] = {worker: [] for worker in self._pending}
        wanting = list(self._pending)
        while wanting:
            wanting = [worker for worker in wanting if self._dispatch_one(worker, sent[worker])]
        return {worker: indices for worker, indices in sent.items() if indices}

    def hand_out(self, worker: str) -> list[int]:
        """What to send to one worker now."""
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
        """Where its next case comes from: first groups first, then most work per seat.

        Only lines of groups of which the worker has fewer than `most` with an episode to come.
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
"""Stands for seats without a limit."""


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Groups so that none stands before one that it waits for; else in the order given.

    In another order workers would hold nothing but cases that wait for others not yet dispatched.
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
    """What dispatch needs of an assignment: each worker's models and its share of seats."""
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
