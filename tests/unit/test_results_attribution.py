"""The parts of the makespan: each cause alone, and the sum of all parts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.attribution import attribute
from pytest_ultrapar.analysis.performance import demand, run_bound
from pytest_ultrapar.pool.model import Limit
from tests.examples import examples
from tests.pools import lane
from tests.unit.certified_bound import certify
from tests.unit.request_logs import episode, log_of, request


def parts_of(log, *limits, start_s=0.0, end_s=None, restricted=False):
    end_s = end_s if end_s is not None else float(log.columns().ended_s.max())
    bound = run_bound(log, limits)
    return attribute(log, limits, bound, start_s=start_s, end_s=end_s, restricted=restricted)


def total_s(parts):
    return sum(getattr(parts, name) for name in parts.__struct_fields__)


def seconds(parts):
    """The parts of more than 0.05 s, without the bound."""
    found = {name: getattr(parts, name) for name in parts.__struct_fields__ if name != "used_s"}
    return {name: round(value, 1) for name, value in found.items() if abs(value) > 0.05}


SEATS = Limit("seats", "key", 2)


def test_waiting_for_the_outer_limit_is_not_charged_to_the_inner_limit():
    inner, outer = Limit("inner", "instance", 2), Limit("outer", "key", 1)
    calls = [episode(request(1.0 * at, at + 1.0, waited_s=1.0 * at)) for at in range(5)]
    found = parts_of(log_of([lane("i0", "k", "outer", "inner")], *calls), outer, inner)
    (row,) = found.limits
    assert row.limit == "outer"
    assert seconds(found.run) == {}
    alone = parts_of(log_of([lane("i0", "k", "outer", "inner")], *calls), inner, outer)
    assert alone.run == found.run


def test_time_between_lease_and_sending_is_client_time():
    calls = [
        episode(request(2.0 * at + 1.0, 2.0 * at + 2.0, held_s=1.0, waited_s=2.0 * at))
        for at in range(5)
        for _ in range(2)
    ]
    found = parts_of(log_of([lane("i0", "k", "seats")], *calls), SEATS)
    assert found.run.used_s == pytest.approx(5.0)
    assert seconds(found.run) == {"client_s": 5.0}


def test_time_between_two_turns_of_an_episode_is_client_time():
    one = episode(request(0.0, 1.0), request(3.0, 4.0, turn=1))
    found = parts_of(log_of([lane("i0", "k", "seats")], one, one, one), Limit("seats", "key", 3))
    assert found.run.used_s == pytest.approx(2.0)
    assert seconds(found.run) == {"client_s": 2.0}


def test_episodes_held_back_by_a_rule_have_their_own_part():
    calls = [episode(request(1.0 * at, at + 1.0)) for at in range(6)]
    found = parts_of(log_of([lane("i0", "k", "seats")], *calls), SEATS, restricted=True)
    assert found.run.used_s == pytest.approx(3.0)
    assert seconds(found.run) == {"rules_s": 2.5, "tail_s": 0.5}


def test_idle_seats_are_startup_before_the_first_full_use_and_client_time_later():
    calls = [episode(request(at, at + 1.0)) for at in (0.0, 2.0, 2.0, 4.0)]
    found = parts_of(log_of([lane("i0", "k", "seats")], *calls), SEATS)
    # Seats x seconds: 3 before both seats were taken at 2 s, and 1 at 3 s, with one episode left.
    assert seconds(found.run) == {"startup_s": 1.5, "client_s": 0.5, "tail_s": 1.0}


def test_last_episode_explains_a_run_bounded_by_the_longest_episode():
    calls = [
        episode(request(0.0, 1.0), request(1.5, 2.5, turn=1)),
        episode(request(0.0, 0.5), request(1.5, 3.0, turn=1, for_rate_s=1.0)),
    ]
    found = parts_of(log_of([lane("i0", "k", "seats")], *calls), Limit("seats", "key", 9))
    assert found.run.used_s == pytest.approx(2.0)
    assert seconds(found.run) == {"rate_wait_s": 1.0}


LONG, SHORT = lane("i0", "k", "seats", model="long"), lane("i1", "k", "seats", model="short")


def test_episode_that_begins_late_for_want_of_seats_is_seat_wait():
    both = [episode(request(0.0, 1.0, on=1)), episode(request(1.0, 4.0))]
    found = parts_of(log_of([LONG, SHORT], *both), Limit("seats", "key", 1))
    assert seconds(found.run) == {}
    # Others take both seats until 1 s. The longest episode bounds the run, and had to wait.
    both.insert(0, both[0])
    found = parts_of(log_of([LONG, SHORT], *both), SEATS)
    assert found.run.used_s == pytest.approx(3.0)
    assert seconds(found.run) == {"seat_wait_s": 1.0}


def test_parts_of_lanes_name_the_most_used_limit():
    lanes = [lane("i0", "k", "key", "i0"), lane("i1", "k", "key", "i1")]
    limits = [Limit("key", "key", 4), Limit("i0", "instance", 1), Limit("i1", "instance", 9)]
    log = log_of(lanes, episode(request(0, 2)), episode(request(0, 3, on=1)))
    found = parts_of(log, *limits)
    assert {row.limit: row.lanes for row in found.limits} == {
        "i0": ("p/i0/k",),
        "key": ("p/i1/k",),
    }


spans = st.lists(
    st.lists(
        st.tuples(
            st.floats(0, 2),  # pause before
            st.floats(0, 2),  # wait for a seat
            st.floats(0, 2),  # wait for a rate
            st.floats(0, 0.5),  # held
            st.floats(0.01, 3),  # service
            st.sampled_from(["ok", "rate", "overload"]),
            st.integers(0, 1),  # lane
            st.booleans(),  # the next one repeats it
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


def episodes_of(drawn):
    for turns in drawn:
        now_s, attempts, turn, number = 0.0, [], 0, 0
        for pause_s, seat_s, rate_s, held_s, service_s, outcome, on, again in turns:
            sent_s = now_s + pause_s + seat_s + rate_s + held_s
            now_s = sent_s + service_s
            attempts.append(
                request(
                    sent_s,
                    now_s,
                    on=on,
                    turn=turn,
                    number=number,
                    waited_s=seat_s,
                    for_rate_s=rate_s,
                    held_s=held_s,
                    outcome=outcome,
                )
            )
            turn, number = (turn, number + 1) if again else (turn + 1, 0)
        yield episode(*attempts)


@examples(60)
@given(spans, st.integers(1, 3) | st.none(), st.sampled_from([None, 0.5, 4.0]), st.booleans())
def test_parts_always_add_up_to_the_makespan(drawn, workers, qps, restricted):
    limits = [Limit("key", "key", workers, qps), Limit("i0", "instance", 2)]
    log = log_of([lane("i0", "k", "key", "i0"), lane("i1", "k", "key")], *episodes_of(drawn))
    bound = run_bound(log, limits)
    if bound is None:
        assert not log.columns().served.any()
        return
    start_s = float(log.columns().sent_s.min())
    end_s = float(log.columns().ended_s.max())
    found = attribute(log, limits, bound, start_s=start_s, end_s=end_s, restricted=restricted)
    assert total_s(found.run) == pytest.approx(end_s - start_s)
    for row in found.limits:
        assert total_s(row.parts) == pytest.approx(end_s - start_s)
        assert min(msgspec.structs.astuple(row.parts)[1:-1]) >= -1e-9


@examples(60)
@given(spans, st.integers(1, 3))
def test_published_prices_prove_the_published_bound(drawn, workers):
    limits = [Limit("key", "key", workers, 3.0), Limit("i0", "instance", 2)]
    lanes = [lane("i0", "k", "key", "i0"), lane("i1", "k", "key")]
    log = log_of(lanes, *episodes_of(drawn))
    bound = run_bound(log, limits)
    if bound is not None and bound.prices:
        proven_s = certify(lanes, limits, demand(log), bound.prices)
        assert proven_s == pytest.approx(bound.seconds, rel=1e-6)


def test_requests_on_a_lane_that_others_need_are_misrouted():
    """Model `m` may use both lanes, and fills the lane that `narrow` needs."""
    lanes = [
        lane("i0", "k", "wide"),
        lane("i1", "k", "tight"),
        lane("i2", "k", "tight", model="narrow"),
    ]
    limits = [Limit("wide", "instance", 1), Limit("tight", "key", 1)]
    first = [episode(request(at, at + 1.0, on=1)) for at in range(4)]
    after = [episode(request(4.0 + at, 5.0 + at, on=2)) for at in range(4)]
    beside = [episode(request(at, at + 1.0)) for at in range(4)]
    found = parts_of(log_of(lanes, *first, *after, *beside), *limits)
    assert found.run.used_s == pytest.approx(6.0, rel=0.02)
    assert found.run.used_s + found.run.misrouted_s + found.run.tail_s == pytest.approx(
        8.0, rel=0.02
    )
    every_one_on_its_own = log_of(
        lanes, *beside, *(episode(request(4.0 + at, 5.0 + at)) for at in range(4)), *after
    )
    assert parts_of(every_one_on_its_own, *limits).run.misrouted_s == pytest.approx(0.0, abs=0.1)
