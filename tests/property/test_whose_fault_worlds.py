"""Worlds of dead keys, missing instances and bad requests: each request gets the right result."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Grant, LeaseRequest
from pytest_ultrapar.broker.refusal_cause import TELLING
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.testing import BrokerPlay
from tests.pools import lane, pool


@dataclass
class Asked:
    """A request: the data that an engine's sender has about it."""

    number: int
    is_bad: bool
    refused_by: tuple[str, ...] = ()
    n_unsent: int = 0
    said: str = ""
    ended: str = ""
    tried_on: list[str] = field(default_factory=list)


class World(BrokerPlay):
    """Requests that all wait from the start, on keys and instances, some of which are dead."""

    def __init__(self, keys, instances, *, dead_keys, dead_instances, bad, n, seats, at_once, seed):
        names = [(f"i{i}", f"k{k}") for i in range(instances) for k in range(keys)]
        limits = [Limit(f"k{k}", "key", workers=seats) for k in range(keys)]
        limits.append(Limit("all", "pool", workers=at_once))
        lanes = [lane(i, k, "all", k, request_s=60.0) for i, k in names]
        super().__init__(LaneBroker(pool(lanes, *limits), seed=seed))
        self.outcome_of = {
            f"p/{i}/{k}": "auth" if k in dead_keys else "not_found" if i in dead_instances else "ok"
            for i, k in names
        }
        self._rng = random.Random(seed)
        self._ids = itertools.count()
        self._of: dict[int, Asked] = {}
        self.refusals = dict.fromkeys(self.outcome_of, 0)
        self.in_flight = dict.fromkeys(self.outcome_of, 0)
        self.first_in_flight: dict[str, int] = {}
        self.checked: set[str] = set()
        self.asked = [Asked(number, number in bad) for number in range(n)]
        self.connect("main")
        for one in self.asked:
            self._ask(one)
        while self.step():
            pass

    def _ask(self, one):
        request = LeaseRequest(
            next(self._ids),
            "m",
            opens=not one.refused_by,
            case_id=f"case {one.number}",
            refused_by=one.refused_by,
        )
        self._of[request.request_id] = one
        self.request("main", request)

    def book(self, actions):
        for action in actions:
            one = self._of.pop(action.request_id)
            if not isinstance(action, Grant):
                if action.kind == "no_lane" and one.refused_by and action.reason != one.said:
                    # As in the engine: a check may have removed the lane that it waited for.
                    one.said = action.reason
                    self.later(0.0, self._ask, one)
                else:
                    one.ended = action.kind
                continue
            at = action.lease.lane
            self.in_flight[at] += 1
            if at in one.refused_by and not action.lease.is_check:
                self.later(0.0, self._unsent, one, action.lease)
                continue
            outcome = self.outcome_of[at]
            if action.lease.is_check:
                self.checked.add(at)
            else:
                one.tried_on.append(at)
                outcome = "forbidden" if outcome == "ok" and one.is_bad else outcome
            self.later(self._rng.uniform(0.01, 0.2), self._back, one, action.lease, outcome)

    def _unsent(self, one, lease):
        one.n_unsent += 1
        assert one.n_unsent < 20
        self.in_flight[lease.lane] -= 1
        self.release("main", lease.lease_id, "unsent")
        self._ask(one)

    def _back(self, one, lease, outcome):
        self.in_flight[lease.lane] -= 1
        if outcome != "ok":
            self.first_in_flight.setdefault(lease.lane, self.in_flight[lease.lane])
            self.refusals[lease.lane] += 1
        self.release("main", lease.lease_id, outcome)
        if lease.is_check:
            self._ask(one)
        elif outcome == "ok":
            one.ended = "ok"
        else:
            one.refused_by = (*one.refused_by, lease.lane)
            self._ask(one)


@given(st.data())
def test_only_dead_lanes_are_removed_and_each_request_gets_the_right_result(data):
    keys, instances = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    dead_keys = data.draw(st.sets(st.sampled_from([f"k{k}" for k in range(keys)])))
    dead_instances = data.draw(st.sets(st.sampled_from([f"i{i}" for i in range(instances)])))
    n = data.draw(st.integers(1, 30))
    seats = data.draw(st.integers(1, 6))
    world = World(
        keys,
        instances,
        dead_keys=dead_keys,
        dead_instances=dead_instances,
        bad=data.draw(st.sets(st.integers(0, n - 1), max_size=5)),
        n=n,
        seats=seats,
        at_once=data.draw(st.integers(1, 30)),
        seed=data.draw(st.integers(0, 1000)),
    )
    alive = [at for at, outcome in world.outcome_of.items() if outcome == "ok"]
    states = {one.lane: one.state for one in world.broker.status(world.now_s).lanes}
    assert all(states[at] == "up" for at in alive)
    for one in world.asked:
        on_alive = [at for at in one.tried_on if at in alive]
        assert len(set(one.tried_on)) == len(one.tried_on), "sent twice on one lane"
        if not alive:
            assert one.ended in {"no_lane", "refusal_of_request"}
        elif one.is_bad:
            assert one.ended == "refusal_of_request"
            assert 1 <= len(on_alive) <= 2
        else:
            assert one.ended == "ok", one
    if len(alive) == len(states) and not any(one.is_bad for one in world.asked):
        assert world.checked == set()
    assert all(states[at] == "out" for at in world.checked if at not in alive)
    for at, refusals in world.refusals.items():
        if at not in alive:
            # The requests in flight at the first refusal, those that bring the lane under
            # suspicion, and a check.
            assert refusals <= world.first_in_flight.get(at, 0) + TELLING + 1
