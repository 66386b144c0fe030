"""A broker and a clock moved by hand, for short stories about who gets what."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Feedback, Grant, LeaseRequest, Refusal
from pytest_ultrapar.testing import BrokerPlay

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import Action, LaneStatus, Lease
    from pytest_ultrapar.pool.model import Pool


class Play(BrokerPlay):
    """Workers are connected at their first request. Leases are known by the id of their request."""

    def __init__(self, pool: Pool, **settings: object) -> None:
        super().__init__(LaneBroker(pool, **settings), now_s=100.0)
        self.leases: dict[int, Lease] = {}
        self.whose: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self.kinds: set[str] = set()
        self.order: list[int] = []
        self._ids = itertools.count(1)
        self._connected: set[str] = set()

    def connect(self, *workers: str) -> None:
        self._connected.update(workers)
        super().connect(*workers)

    def ask(self, worker: str = "gw0", model: str = "m", **wish: object) -> int:
        """An open by default; `lane=...` or `opens=False` for a turn."""
        if worker not in self._connected:
            self.connect(worker)
        wish.setdefault("opens", "lane" not in wish)
        request = LeaseRequest(next(self._ids), model, **wish)
        self.whose[request.request_id] = worker
        self.request(worker, request)
        return request.request_id

    def back(
        self, request_id: int, outcome: str = "ok", retry_after_s: float | None = None
    ) -> None:
        lease = self.leases.pop(request_id)
        self.release(self.whose[request_id], lease.lease_id, outcome, Feedback(retry_after_s))

    def end(self, case_id: str, group: str = "", worker: str = "gw0") -> None:
        self.episode_ended(worker, case_id, group)

    def leave(self, worker: str) -> None:
        self._connected.discard(worker)
        self.disconnect(worker)
        self.leases = {n: one for n, one in self.leases.items() if self.whose[n] != worker}

    def book(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Grant):
                assert self.whose[action.request_id] == action.worker
                self.leases[action.request_id] = action.lease
                self.order.append(action.request_id)
            else:
                assert isinstance(action, Refusal)
                self.refused[action.request_id] = action.reason
                self.kinds.add(action.kind)

    def lane(self, request_id: int) -> str | None:
        """Where a request got its lease, None while it waits."""
        lease = self.leases.get(request_id)
        return None if lease is None else lease.lane

    def status(self, lane_id: str) -> LaneStatus:
        lanes = self.broker.status(self.now_s).lanes
        return next(one for one in lanes if one.lane == lane_id)
