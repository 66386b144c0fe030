"""No schedule within the limits is shorter than the bound: a search tries all small ones."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.performance import run_bound
from pytest_ultrapar.analysis.plan.lower_bound import lower_bound, request_classes
from pytest_ultrapar.analysis.requests import audit
from pytest_ultrapar.broker.throttles import Pacer
from pytest_ultrapar.pool.model import Lane, LaneId, Limit
from tests.examples import examples
from tests.pools import lane
from tests.unit.request_logs import episode, log_of, request

TICK_S = 0.5
"""Requests start at and take whole ticks; other starts gain nothing, as limits are whole, too."""


def limits_named(*names):
    workers = st.none() | st.integers(1, 2)
    qps = st.none() | st.integers(1, 3)
    return st.tuples(
        *(st.builds(Limit, st.just(name), st.just("key"), workers, qps) for name in names)
    )


def shortest_s(lanes, limits, requests):
    """The shortest schedule, found by trying all; requests are (model, ticks)."""
    by_name = {limit.name: limit for limit in limits}
    order = sorted(requests, key=lambda request: -request[1])

    def fits(path, begin, ticks, placed):
        for name in path:
            limit = by_name[name]
            own = [(b, e) for other, b, e in placed if name in other] + [(begin, begin + ticks)]
            if limit.workers is not None:
                at_once = max(sum(b <= t < e for b, e in own) for t, _ in own)
                if at_once > limit.workers:
                    return False
            if limit.qps is not None:
                # Half-open windows of a second: those that begin with a send contain the most.
                window = max(sum(t <= b < t + 1 / TICK_S for b, _ in own) for t, _ in own)
                if window > limit.qps:
                    return False
        return True

    def place(number, ends, placed):
        if number == len(order):
            return True
        model, ticks = order[number]
        return any(
            fits(path, begin, ticks, placed)
            and place(number + 1, ends, [*placed, (path, begin, begin + ticks)])
            for path in {lane.limits for lane in lanes if lane.model == model}
            for begin in range(ends - ticks + 1)
        )

    least = max(ticks for _, ticks in order)
    return next(ends for ends in count(least) if place(0, ends, [])) * TICK_S


@examples(60)
@given(
    limits_named("pool", "k0", "k1"),
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3)), min_size=1, max_size=4),
)
def test_bound_is_never_above_the_shortest_schedule(limits, requests):
    """Model `a` may use both keys, model `b` only the second."""
    lanes = [
        Lane(LaneId(f"p/{model}/{key}"), "p", model, model, key, ("pool", key), 1.0, 1.0)
        for model, key in [("a", "k0"), ("a", "k1"), ("b", "k1")]
    ]
    services = {
        model: [ticks * TICK_S for own, ticks in requests if own == model] for model in "ab"
    }
    found = lower_bound(lanes, limits, request_classes(services))
    assert found.seconds <= shortest_s(lanes, limits, requests) + 1e-9


rates = st.floats(0.05, 30.0) | st.sampled_from([0.2, 0.5, 1.0, 1.5, 2.5, 10.0, 18.0])


@given(rates, st.sampled_from(["qps", "rpm"]), st.integers(1, 40), st.floats(0.001, 5.0))
def test_sends_of_the_limiter_stay_above_the_bound_and_pass_the_audit(rate, kind, n, service_s):
    """The schedule of a lane with only this rate, as fast as the broker allows."""
    limit = Limit("rate", "key", **{kind: rate})
    limiter = Pacer(rate, 1.0 if kind == "qps" else 60.0)
    attempts, now_s = [], 0.0
    for _ in range(n):
        now_s = limiter.ready_at_s(now_s)
        limiter.take(now_s)
        attempts.append(episode(request(now_s, now_s + service_s)))
    log = log_of([lane("i0", "k", "rate")], *attempts)
    found = run_bound(log, [limit])
    assert found is not None
    assert found.seconds <= now_s + service_s + 1e-6
    (audited, _) = audit(log, [limit])
    assert audited.passed == ()
