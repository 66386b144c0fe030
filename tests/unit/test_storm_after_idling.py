"""A provider refuses all requests for a while. Seconds later its lanes are at full speed."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import LIMITED
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Feedback, Grant, LeaseRequest
from pytest_ultrapar.engine.retry import RetryPolicy, Tries
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.testing import BrokerPlay
from tests.pools import lane, pool

SOON_S = 5.0


class Storm(BrokerPlay):
    """A few requests, a pause, then many. The keys refuse all requests for `storm_s`."""

    def __init__(
        self, what, storm_s, *, takes_s, retry_after_s=None, seed=0, serves_per_s=math.inf
    ):
        super().__init__(LaneBroker(what, seed=seed))
        self._begins_s, self._ends_s = storm_s
        self._takes_s = takes_s
        self._retry_after_s = retry_after_s
        self._serves_per_s = serves_per_s
        self._let_in_s = []
        self._ids = itertools.count()
        self._tries = {}
        self._rng = random.Random(seed)
        self.answered_s = []
        self.connect("main")

    def ask(self, n, tries=None):
        for _ in range(n):
            of_this = tries or Tries()
            request = LeaseRequest(next(self._ids), "m")
            self._tries[request.request_id] = of_this
            self.request("main", request)

    def book(self, actions):
        for action in actions:
            assert isinstance(action, Grant)
            tries = self._tries.pop(action.request_id)
            is_refused = self._begins_s <= self.now_s < self._ends_s or self._is_too_many()
            outcome = "rate" if is_refused else "ok"
            self.later(
                0.02 if is_refused else self._takes_s, self._end, action.lease, outcome, tries
            )

    def _end(self, lease, outcome, tries):
        failure = Failure(outcome, "", retry_after_s=self._retry_after_s)
        own = outcome in LIMITED and tries.is_own(lease)
        feedback = Feedback(failure.retry_after_s, is_too_many=True, is_own=own)
        self.release("main", lease.lease_id, outcome, Feedback() if outcome == "ok" else feedback)
        if outcome == "ok":
            self.answered_s.append(self.now_s)
            return
        tries.failed.append(outcome)
        self.later(RetryPolicy().wait_s(failure, tries, self._rng), self.ask, 1, tries)

    def _is_too_many(self):
        last_s = [at_s for at_s in self._let_in_s if at_s > self.now_s - 1.0]
        is_too_many = len(last_s) >= self._serves_per_s
        self._let_in_s = last_s if is_too_many else [*last_s, self.now_s]
        return is_too_many

    def per_s(self, from_s, to_s):
        return sum(from_s <= at_s < to_s for at_s in self.answered_s) / (to_s - from_s)


def keys(n, **limits):
    names = [f"k{i}" for i in range(n)]
    lanes = [lane("i", name, name, request_s=60.0) for name in names]
    return pool(lanes, *(Limit(name, "key", **limits) for name in names))


PLAYS = {
    "20 per second declared": (keys(1, qps=20), 0.3, None, 3.0, 20.0),
    "four keys": (keys(4, qps=20), 0.3, None, 3.0, 80.0),
    "rate per minute": (keys(1, rpm=1200), 0.3, None, 3.0, 20.0),
    "seats and rate": (keys(1, qps=20, workers=30), 0.3, None, 3.0, 20.0),
    "seats alone": (keys(1, workers=10), 0.5, None, 3.0, 20.0),
    "seats alone, four keys": (keys(4, workers=10), 0.5, None, 3.0, 80.0),
    "with Retry-After": (keys(1, qps=20), 0.3, 1.0, 3.0, 20.0),
    "storm of one second": (keys(1, qps=20), 0.3, None, 1.0, 20.0),
    "storm of eight seconds": (keys(1, qps=20), 0.3, None, 8.0, 20.0),
}


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("idle_s", [0.0, 12.0, 120.0])
@pytest.mark.parametrize("play", PLAYS)
def test_lane_is_at_full_speed_within_seconds_after_a_storm(play, idle_s, seed):
    what, takes_s, retry_after_s, storm_s, best_per_s = PLAYS[play]
    begins_s = 10.0 + idle_s
    ends_s = begins_s + storm_s
    run = Storm(what, (begins_s, ends_s), takes_s=takes_s, retry_after_s=retry_after_s, seed=seed)
    run.ask(15)
    run.wait(begins_s - 0.5)
    run.ask(int(30 * best_per_s))
    run.wait(ends_s + 20.0)
    from_s = ends_s + SOON_S + takes_s
    assert run.per_s(from_s, from_s + 10.0) >= 0.9 * best_per_s


@pytest.mark.parametrize("seed", range(6))
def test_limit_after_idling_is_found_as_fast_as_without_idling(seed):
    def play(idle_s):
        run = Storm(keys(1, workers=40), (0.0, 0.0), takes_s=0.3, seed=seed, serves_per_s=20)
        run.ask(15)
        run.wait(2.0 + idle_s)
        run.ask(900)
        run.wait(20.0)
        return run.per_s(run.now_s - 15.0, run.now_s)

    for idle_s in (12.0, 120.0):
        assert play(idle_s) >= 0.9 * play(0.0)
