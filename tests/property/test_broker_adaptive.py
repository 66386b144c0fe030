"""The broker in adaptive mode, with breakers and tokens: limits hold; no request waits forever."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import Limit, Pool
from tests.broker_play import Play
from tests.examples import examples
from tests.pools import lane, pool

# The result of each request in turn: outcome, duration, the refusal's feedback.
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
    """Lanes whose paths have different depths: an estimate of one limit affects others, too."""
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
            names = ["p", f"p/{key}", f"p/{instance}", f"p/{instance}/{key} lane"]
            levels = ["provider", "key", "instance", "lane"]
            for name, level in zip(names, levels, strict=True):
                if name not in limits:
                    limit(name, level)
            path = (name for name in names if name in limits)
            lanes.append(lane(instance, key, *path, model=model, request_s=60.0))
    return pool(lanes, *limits.values(), rate_mode="adaptive")


@examples(150)
@given(pools(), COURSES, st.integers(1, 60))
def test_adaptive_broker_serves_every_request_in_the_end(pool, courses, wanted):
    lanes = {one.lane_id: one for one in pool.lanes}
    coming = itertools.cycle(courses)

    def granted(number):
        for name in lanes[play.leases[number].lane].limits:
            cap = pool.limits[name].workers
            taken = sum(name in lanes[one.lane].limits for one in play.leases.values())
            assert cap is None or taken <= cap
        outcome, took_s, exceeded, retry_after_s = next(coming)
        told = (retry_after_s, exceeded) if outcome == "rate" else (None, None, 50)
        play.later(took_s, play.back, number, outcome, *told)

    play = Play(pool, granted, now_s=0.0, episode_timeout_s=math.inf)
    for n in range(wanted):
        play.ask(model="ab"[n % 2], opens=False, tokens=(10, 500)[n % 2])
    for _ in range(20_000):
        if not (play.leases or play.waiting) or not play.step():
            break
    assert len(play.granted) + len(play.refused) == wanted
    assert play.broker.status(play.now_s).waiting == 0
    play.broker.close(play.now_s)
    kept = Counter()
    for pause in play.broker.take_pauses():
        kept[f"{pause.provider}/{pause.instance}/{pause.key}", pause.cause] += (
            pause.t_end_s - pause.t_s
        )
    for status in play.broker.status(play.now_s).lanes:
        for cause, paused_s in status.paused_s.items():
            assert kept[status.lane, cause] == pytest.approx(paused_s, abs=1e-6)
    for change in play.broker.take_changes():
        declared = pool.limits.get(change.limit)
        if declared is not None and declared.workers is not None:
            assert 1 <= change.workers <= declared.workers
