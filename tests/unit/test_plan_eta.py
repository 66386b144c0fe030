"""Estimates during a run compared with its real end, in virtual time."""

from __future__ import annotations

import random
import statistics
from collections import Counter

import pytest

from pytest_ultrapar.analysis.plan.eta import (
    MOST_LOOKS,
    EndEstimates,
    Eta,
    ToAsk,
    UseSamples,
    estimate,
)
from pytest_ultrapar.analysis.plan.forecast import ForecastEpisode, Step, _Play
from pytest_ultrapar.broker.assignment import Assignment, Group

FREE = Assignment()
TOLERANCE = 0.25


class Watched(_Play):
    """A forecast that records the broker's status whenever an episode ends."""

    def __init__(self, pool, courses, assignment=FREE, most_open=1_000_000, between_s=0.0):
        self.seen = []
        super().__init__(pool, courses, assignment, between_s, most_open, 0)

    def _over(self, course):
        super()._over(course)
        self.seen.append(self.broker.status(self.now_s))


def estimates(pool, courses, **options):
    """The estimate and the true remaining time at each tenth of the run."""
    play = Watched(pool, courses, **options)
    looks = UseSamples.at(0.0)
    end_s = play.run().makespan_s
    to_ask = ToAsk(
        Counter(course.model for course in courses),
        0,
        pool.lanes,
        tuple(pool.limits.values()),
        options.get("assignment", FREE).is_restricted or options.get("most_open", 1_000_000) == 1,
    )
    found = []
    for status in play.seen:
        looks = looks.then(status)
        assert len(looks.used) <= 2 * MOST_LOOKS
        tenth = int(status.now_s / end_s * 10)
        if tenth > len(found) and tenth < 10:
            eta = estimate(to_ask, status, looks.since)
            assert eta is not None
            found.append((tenth, eta.seconds, end_s - status.now_s, eta.slowest))
    return found


def assert_true(found, slowest=None):
    assert len(found) >= 8
    wrong = [one for one in found if abs(one[1] / one[2] - 1) > TOLERANCE]
    # Few episodes are left, and the longest of them is unknown.
    assert [one for one in wrong if one[0] < 9] == [], found
    if slowest is not None:
        assert all(one[3].startswith(slowest) for one in found if one[0] < 9), found


@pytest.fixture
def pool(load):
    return lambda text: load("schema = 1\n" + text)


def provider(name, limits, *models, keys='[{ name = "key0" }]', more=""):
    listed = "".join(f'[[provider.model]]\nname = "{model}"\n{more}\n' for model in models)
    return f'[[provider]]\nname = "{name}"\napi = "simulated"\nkeys = {keys}\n{limits}\n{listed}'


def courses(model, n, n_turns, service_s, seed=1):
    """Episodes with random lengths around these means."""
    draw = random.Random(seed)
    return [
        ForecastEpisode(
            f"{model}{number}",
            model,
            "",
            tuple(
                service_s * draw.lognormvariate(-0.125, 0.5)
                for _ in range(max(1, round(n_turns * draw.uniform(0.5, 1.5))))
            ),
        )
        for number in range(n)
    ]


def mixed(*parts):
    """Cases of several models in random order."""
    cases = [course for part in parts for course in part]
    random.Random(3).shuffle(cases)
    return cases


def test_estimate_holds_if_seats_bind(pool):
    found = pool(
        provider("wide", "per_key = { workers = 100 }", "fast")
        + provider("narrow", "per_key = { workers = 8 }", "slow")
    )
    cases = mixed(courses("fast", 300, 2, 1.0), courses("slow", 120, 5, 4.0))
    assert_true(estimates(found, cases), "narrow/key0 (workers)")


def test_undeclared_limit_lengthens_the_estimate(pool):
    """A client that pauses as long as an answer takes leaves seats empty."""
    found = pool(provider("p", "per_key = { workers = 50 }", "m"))
    cases = courses("m", 300, 6, 0.5)
    assert_true(estimates(found, cases, most_open=10, between_s=0.5), "p/key0 (workers)")


def test_estimate_holds_for_groups_in_sequence(pool):
    found = pool(provider("p", "per_key = { workers = 10 }", "a", "b"))
    cases = [
        ForecastEpisode(course.case_id, course.model, course.model, course.services_s)
        for course in (*courses("a", 300, 2, 1.0), *courses("b", 300, 2, 1.0, seed=2))
    ]
    groups = tuple(
        Group(name, tuple(one.case_id for one in cases if one.model == name), after=after)
        for name, after in (("a", ()), ("b", ("a",)))
    )
    assert_true(estimates(found, cases, assignment=Assignment(groups=groups)))


def shapes(pool, seed):
    """Ten kinds of runs: pool, courses and the limit that binds."""
    narrow = provider("wide", "per_key = { workers = 100 }", "fast")
    fast = courses("fast", 400, 6, 0.8, seed)
    yield (
        pool(narrow + provider("narrow", "per_key = { workers = 5, qps = 4 }", "slow")),
        mixed(fast, courses("slow", 150, 6, 0.9, seed)),
        {},
    )
    yield (
        pool(narrow + provider("narrow", "per_key = { workers = 8 }", "slow")),
        mixed(courses("fast", 300, 2, 1.0, seed), courses("slow", 120, 5, 4.0, seed)),
        {},
    )
    keys = '[{ name = "key0" }, { name = "key1" }, { name = "key2" }]'
    shared = provider("p", "per_key = { workers = 5 }", "a", "b", keys=keys)
    yield (
        pool(f'{shared}[[provider.model]]\nname = "c"\nkeys = ["key2"]\n'),
        mixed(
            courses("a", 100, 2, 1.0, seed),
            courses("b", 60, 4, 2.0, seed),
            courses("c", 90, 3, 3.0, seed),
        ),
        {},
    )
    one = {
        "workers = 60": (courses("m", 600, 6, 2.0, seed), {}),
        "workers = 4": (courses("m", 40, 8, 3.0, seed), {}),
        "rpm = 30": (courses("m", 120, 2, 1.0, seed), {}),
        "tpm = 6000": (
            [ForecastEpisode(f"c{n}", "m", "", (1.0,), tokens=100) for n in range(300)],
            {},
        ),
        "workers = 50": (courses("m", 300, 6, 0.5, seed), {"most_open": 10, "between_s": 0.5}),
        "workers = 51": (courses("m", 200, 3, 0.5, seed), {"most_open": 1, "between_s": 0.2}),
        "qps = 3": (courses("m", 100, 3, 2.0, seed), {}),
    }
    for limit, (cases, held) in one.items():
        yield pool(provider("p", f"per_key = {{ {limit} }}", "m")), cases, held


@pytest.mark.slow
def test_estimate_at_half_time_is_close_and_its_interval_contains_the_end(pool):
    errors, n_held = [], 0
    for found, cases, held in shapes(pool, 11):
        play = Watched(found, cases, **held)
        looks, ends = UseSamples.at(0.0), EndEstimates()
        end_s = play.run().makespan_s
        to_ask = ToAsk(
            Counter(course.model for course in cases),
            0,
            found.lanes,
            tuple(found.limits.values()),
            held.get("most_open", 1_000_000) == 1,
        )
        next_s = 0.0
        for status in play.seen:
            looks = looks.then(status)
            if status.now_s > end_s / 2:
                break
            if status.now_s < next_s:
                continue
            next_s = status.now_s + end_s / 40
            eta = estimate(to_ask, status, looks.since)
            if eta is not None:
                ends.note(status.now_s, eta)
                low_s, high_s = ends.interval(status.now_s, eta, status.ended_episodes)
                left_s = end_s - status.now_s
        errors.append(abs(eta.seconds / left_s - 1))
        n_held += low_s <= left_s <= high_s
        assert high_s - low_s < 2 * left_s, "the interval is too wide"
    assert len(errors) == 10
    assert statistics.median(errors) <= 0.15, errors
    assert n_held >= 9


def test_interval_narrows_as_cases_end_and_covers_recent_estimates():
    ends = EndEstimates()
    ends.note(0.0, Eta(100.0, ""))
    assert ends.interval(0.0, Eta(100.0, ""), 0) == (0.0, 250.0)
    ends.note(10.0, Eta(100.0, ""))
    low_s, high_s = ends.interval(10.0, Eta(100.0, ""), 10_000)
    assert (low_s, high_s) == (98.5, 101.5), "estimates of the first half are forgotten"
    ends.note(11.0, Eta(50.0, ""))
    assert ends.interval(11.0, Eta(50.0, ""), 10_000) == (49.25, 99.75)


def test_episodes_without_requests_lower_the_remaining_work(pool):
    found = pool(provider("p", "per_key = { workers = 4 }", "m"))
    play = Watched(found, courses("m", 40, 1, 1.0))
    first = UseSamples.at(0.0).since
    play.broker.episodes_ended("forecast", [f"silent{n}" for n in range(100)], 0.0)
    end_s = play.run().makespan_s
    status = play.seen[len(play.seen) // 2]
    to_ask = ToAsk({"m": 240}, 100, found.lanes, tuple(found.limits.values()), restricted=False)
    all_asked = estimate(to_ask, status, first)
    to_ask = ToAsk({"m": 140}, 0, found.lanes, tuple(found.limits.values()), restricted=False)
    some_silent = estimate(to_ask, status, first)
    assert some_silent.seconds < end_s
    assert all_asked.seconds > 2 * end_s


@pytest.mark.slow
def test_requests_of_judges_are_counted(pool):
    two = pool(
        provider("p", "per_key = { workers = 20 }", "m")
        + provider("q", "per_key = { workers = 4 }", "j")
    )
    judged = [
        ForecastEpisode(one.case_id, "m", "", one.services_s, beside=(Step("j", 0.5),) * 2)
        for one in courses("m", 600, 2, 0.5)
    ]
    assert_true(estimates(two, judged), "q/key0 (workers)")
