"""The broker in adaptive mode, with breakers and tokens: limits hold, and nobody waits for ever."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import Feedback, Grant, LeaseRequest
from pytest_ultrapar.pool.model import Key, Lane, LaneId, Limit, Model, Pool, Provider
from pytest_ultrapar.testing import BrokerPlay
from tests.examples import examples

# What each request in turn will bring: outcome, how long it takes, what its refusal says.
COURSES = st.lists(
    st.tuples(
        st.sampled_from(["ok", "ok", "ok", "rate", "rate", "overload", "timeout", "malformed"]),
        st.floats(0.01, 20),
        st.sampled_from([None, "rate", "in_flight", "tokens"]),
        st.none() | st.floats(0.01, 30),
    ),
    min_size=1,
    max_size=60,
)


@st.composite
def pools(draw) -> Pool:
    """Lanes whose paths have different depths: what one looks for binds others, too."""
    limits: dict[str, Limit] = {}

    def limit(name, level):
        if draw(st.booleans()):
            limits[name] = Limit(
                name,
                level,
                workers=draw(st.none() | st.integers(1, 20)),
                qps=draw(st.none() | st.sampled_from([2.0, 20.0])),
                tpm=draw(st.none() | st.sampled_from([600.0, 60_000.0])),
            )
        return name

    lanes = []
    for key, model in itertools.product(("k0", "k1"), ("a", "b")):
        for n in range(draw(st.integers(1, 2))):
            instance = f"{model}{n}"
            lane_id = LaneId(f"p/{instance}/{key}")
            names = ["p", f"p/{key}", f"p/{instance}", f"{lane_id} lane"]
            levels = ["provider", "key", "instance", "lane"]
            for name, level in zip(names, levels, strict=True):
                if name not in limits:
                    limit(name, level)
            path = tuple(name for name in names if name in limits)
            lanes.append(Lane(lane_id, "p", model, instance, key, path, 0.0, 60.0))
    models = tuple(Model(name, ()) for name in ("a", "b"))
    keys = (Key("k0"), Key("k1"))
    provider = Provider("p", "openai", "", keys, models, rate_mode="adaptive")
    return Pool("pool.toml", "", (provider,), tuple(lanes), limits)


class Play(BrokerPlay):
    """As many requests as wanted, each with its course, in virtual time."""

    def __init__(self, pool: Pool, courses: list, wanted: int) -> None:
        super().__init__(LaneBroker(pool, episode_timeout_s=math.inf))
        self.pool = pool
        self.lanes = {lane.lane_id: lane for lane in pool.lanes}
        self.courses = itertools.cycle(courses)
        self.n_coming = 0
        self.ids = itertools.count()
        self.in_flight: dict[str, int] = {}
        self.served = self.refused = 0
        self.connect("w")
        for n in range(wanted):
            tokens = (10, 500)[n % 2]
            request = LeaseRequest(next(self.ids), "ab"[n % 2], opens=False, tokens=tokens)
            self.request("w", request)

    def book(self, actions) -> None:
        for action in actions:
            if not isinstance(action, Grant):
                self.refused += 1
                continue
            self.served += 1
            lease = action.lease
            for name in self.lanes[lease.lane].limits:
                self.in_flight[name] = self.in_flight.get(name, 0) + 1
                cap = self.pool.limits[name].workers
                assert cap is None or self.in_flight[name] <= cap
            outcome, took_s, exceeded, retry_after_s = next(self.courses)
            feedback = (
                Feedback(retry_after_s, exceeded) if outcome == "rate" else Feedback(tokens=50)
            )
            self.n_coming += 1
            self.later(took_s, self.answered, lease, outcome, feedback)

    def run(self) -> None:
        for _ in range(20_000):
            is_over = not self.n_coming and not self.broker.status(self.next_s()).waiting
            if is_over or not self.step():
                return

    def answered(self, lease, outcome, feedback) -> None:
        self.n_coming -= 1
        for name in self.lanes[lease.lane].limits:
            self.in_flight[name] -= 1
        self.release("w", lease.lease_id, outcome, feedback)


@examples(150)
@given(pools(), COURSES, st.integers(1, 60))
def test_adaptive_broker_serves_everybody_in_the_end(pool, courses, wanted):
    play = Play(pool, courses, wanted)
    play.run()
    assert play.served + play.refused == wanted
    assert play.broker.status(play.now_s).waiting == 0
    for change in play.broker.take_changes():
        declared = pool.limits.get(change.limit)
        if declared is not None and declared.workers is not None:
            assert 1 <= change.workers <= declared.workers
