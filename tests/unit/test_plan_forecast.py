"""The forecast on runs whose length is known."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.plan.forecast import ForecastEpisode, Step, forecast
from pytest_ultrapar.broker.assignment import Assignment, Group
from tests.unit.pool_texts import simulated

FREE = Assignment()


@pytest.fixture
def pool(load):
    return lambda limits, keys='[{ name = "key0" }]': load(simulated(limits, keys=keys, named="m"))


def courses(n, *services_s, group=""):
    return [ForecastEpisode(f"{group}{number}", "m", group, services_s) for number in range(n)]


def test_seats_serve_requests_in_rounds(pool):
    found = forecast(pool("per_key = { workers = 4 }"), courses(40, 0.5), FREE)
    assert found.makespan_s == pytest.approx(5.0)
    assert found.peak_in_flight == 4
    assert found.refused == ()


def test_turns_of_an_episode_are_sequential_with_client_time_between(pool):
    wide = pool("per_key = { workers = 50 }")
    assert forecast(wide, courses(10, 0.5, 1.0, 0.25), FREE).makespan_s == pytest.approx(1.75)
    slow = forecast(wide, courses(10, 0.5, 1.0, 0.25), FREE, between_s=0.1)
    assert slow.makespan_s == pytest.approx(1.95)


def test_one_open_episode_at_a_time_takes_the_sum_of_all(pool):
    found = forecast(pool("per_key = { workers = 5 }"), courses(10, 0.5, 0.5), FREE, most_open=1)
    assert found.makespan_s == pytest.approx(10.0)
    assert found.peak_in_flight == 1


def test_groups_wait_for_their_predecessors_and_start_delays(pool):
    first, second = courses(10, 1.0, group="a"), courses(10, 1.0, group="b")
    groups = (
        Group("a", tuple(one.case_id for one in first)),
        Group("b", tuple(one.case_id for one in second), after=("a",), start_after_s=3.0),
    )
    wide = pool("per_key = { workers = 50 }")
    found = forecast(wide, [*first, *second], Assignment(groups=groups))
    assert found.makespan_s == pytest.approx(1.0 + 3.0 + 1.0)


def test_all_cases_without_a_lane_are_refused(pool):
    without_lane = [ForecastEpisode(str(number), "unknown", "", (1.0,)) for number in range(1000)]
    found = forecast(pool("per_key = { workers = 4 }"), without_lane, FREE)
    assert (len(found.refused), found.makespan_s) == (1000, 0.0)


TWO = '[[provider.model]]\nname = "j"\nkeys = ["key1"]\n'


def test_subject_and_judge_alternate_on_a_key_of_one_seat(load):
    one_seat = load(simulated("per_key = { workers = 1 }", named="m") + TWO.replace("key1", "key0"))
    asked = [ForecastEpisode(str(n), "m", "", (0.5,), beside=(Step("j", 0.25),)) for n in range(20)]
    found = forecast(one_seat, asked, FREE)
    assert found.makespan_s == pytest.approx(20 * 0.75)
    assert (found.peak_in_flight, found.refused) == (1, ())
    assert {lane: load.requests for lane, load in found.lanes.items()} == {
        "sim/m/key0": 20,
        "sim/j/key0": 20,
    }


def test_groups_do_not_bind_requests_to_roles(load):
    keys = '[{ name = "key0" }, { name = "key1" }]'
    two = load(simulated("per_key = { workers = 9 }", keys=keys, named="m") + TWO)
    asked = [ForecastEpisode(str(n), "m", "g", (0.5,), beside=(Step("j", 0.25),)) for n in range(4)]
    group = Group("g", ("0", "1", "2", "3"), (two.lanes[0].lane_id,), at_once=1)
    found = forecast(two, asked, Assignment(groups=(group,)))
    assert found.makespan_s == pytest.approx(4 * 0.75)
    assert found.refused == ()
