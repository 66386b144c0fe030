"""Play stories with the broker on a virtual clock: which worker gets which lease.

A short story requests and returns leases by hand. A long one defines with `on_grant` what follows
each grant, for example a return `later`, and advances the time. `broker_judge.Judge` works
differently: it checks every call of the broker with its own records.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Feedback, Grant, LeaseRequest, Refusal, TokenBounds
from pytest_ultrapar.testing import BrokerPlay

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.broker.protocol import Action, LaneStatus, Lease
    from pytest_ultrapar.pool.model import Pool


class Play(BrokerPlay):
    """Connect workers at their first request, and find leases by the id of their request.

    Attributes:
        on_grant: Called with the request's id as soon as it has its lease.
        requests: All requests; the broker's `waiting` has the unanswered ones.
        whose: The worker of each request.
        granted: All leases ever granted, in order; `leases` has those in use.
        refused: The reason for each refused request.
        kinds: The kinds of all refusals.
    """

    def __init__(
        self,
        pool: Pool,
        on_grant: Callable[[int], object] = lambda _: None,
        *,
        now_s: float = 100.0,
        **settings: object,
    ) -> None:
        super().__init__(LaneBroker(pool, **settings), now_s=now_s)
        self.on_grant = on_grant
        self.requests: dict[int, LeaseRequest] = {}
        self.waiting: set[int] = set()
        self.whose: dict[int, str] = {}
        self.granted: dict[int, Lease] = {}
        self.leases: dict[int, Lease] = {}
        self.refused: dict[int, str] = {}
        self.kinds: set[str] = set()
        self._ids = itertools.count(1)
        self._connected: set[str] = set()

    def connect(self, *workers: str) -> None:
        self._connected.update(workers)
        super().connect(*workers)

    def ask(self, worker: str = "gw0", model: str = "m", **wish: object) -> int:
        """Request an opening by default; `lane=...` or `opens=False` for a turn."""
        if worker not in self._connected:
            self.connect(worker)
        wish.setdefault("opens", "lane" not in wish)
        if "most_out" in wish:
            most_in, most_out = wish.pop("most_in", 0), wish.pop("most_out")
            wish["most"] = TokenBounds(most_in, most_out, wish.pop("n_guessed", 0))
        request = LeaseRequest(next(self._ids), model, **wish)
        self.whose[request.request_id] = worker
        self.requests[request.request_id] = request
        self.waiting.add(request.request_id)
        self.request(worker, request)
        return request.request_id

    def withdraw(self, worker: str, request_id: int) -> None:
        self.waiting.discard(request_id)
        self.say(worker, wire.Withdraw(request_id))

    def back(self, request_id: int, outcome: str = "ok", *feedback: object) -> None:
        """Return a lease; `feedback` are the fields of `Feedback`, `retry_after_s` first."""
        self.answer(request_id, outcome, Feedback(*feedback))

    def answer(self, request_id: int, outcome: str, feedback: Feedback) -> None:
        """Return a lease with a complete `Feedback`."""
        lease = self.leases.pop(request_id)
        self.release(self.whose[request_id], lease.lease_id, outcome, feedback)

    def paid(self, request_id: int, most_in: int, most_out: int, n_guessed: int = 0) -> bool:
        """Whether the broker could reserve the money for a request that has its lease."""
        lease = self.leases[request_id]
        pay = wire.Pay(lease.lease_id, TokenBounds(most_in, most_out, n_guessed))
        return self.say(self.whose[request_id], pay).is_paid

    def end(self, case_id: str, worker: str = "gw0") -> None:
        self.episode_ended(worker, case_id)

    def leave(self, worker: str) -> None:
        self._connected.discard(worker)
        self.disconnect(worker)
        self.leases = {n: one for n, one in self.leases.items() if self.whose[n] != worker}
        self.waiting = {n for n in self.waiting if self.whose[n] != worker}

    def book(self, actions: list[Action]) -> None:
        for action in actions:
            number = action.request_id
            assert self.whose[number] == action.worker
            self.waiting.discard(number)
            if isinstance(action, Grant):
                self.leases[number] = self.granted[number] = action.lease
                self.on_grant(number)
            else:
                assert isinstance(action, Refusal)
                self.refused[number] = action.reason
                self.kinds.add(action.kind)

    def lane(self, request_id: int) -> str | None:
        """The lane on which a request got its lease, None while it waits."""
        lease = self.leases.get(request_id)
        return None if lease is None else lease.lane

    def status(self, lane_id: str) -> LaneStatus:
        lanes = self.broker.status(self.now_s).lanes
        return next(one for one in lanes if one.lane == lane_id)
