"""The estimated speed-up never exceeds the truth: servers of all kinds, in virtual time."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from types import SimpleNamespace

import msgspec
import pytest

from pytest_ultrapar.analysis.slowdown import stretch
from pytest_ultrapar.analysis.statistics import run_statistics
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.records import Case, Grade
from pytest_ultrapar.store.tables import spent_by
from tests.unit.case_measures import measure_case, measures_of
from tests.unit.request_logs import episode, log_of, request
from tests.unit.slow_servers import batches, knee, play

KNEES = [
    pytest.param(most, marks=() if most in {1, 4, 16, 56} else pytest.mark.slow)
    for most in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 56, 60, 64)
]
FIXED = knee(1e9)
PLAYS = [
    (seats, n, turns, spread, gap_s)
    for seats in (4, 16, 64)
    for n in (40, 300)
    for turns in (1, 5)
    for spread in (0.0, 0.5)
    for gap_s in (0.0, 0.02)
]


LANES = (Lane("p/i0/k", "p", "m", "i0", "k", ("p/k",), 1.0, 1.0),)
CASE, GRADE = Case(0, "c", "n", "s", "m", 0, {}, 1), Grade("c", "gw0", "solved", "passed", 5)


def ran(slowdown, how, *, says_tokens=False):
    """The statistics of a played run, and its true speed-up over sequential requests."""
    seats, n, turns, spread, gap_s = how
    draw = random.Random(f"{seats} {n} {turns} {spread} {gap_s}")
    sizes_s = [
        [draw.lognormvariate(0, spread) for _ in range(draw.randint(1, turns))] for _ in range(n)
    ]
    asked = defaultdict(list)
    for one in play(sizes_s, slowdown, seats, gap_s=gap_s):
        own = asked[one.case]
        tokens = round(1000 * sizes_s[one.case][len(own)]) if says_tokens else None
        waited_s = one.sent_s - own[-1].t_end_s if own else 0.0
        times = {"turn": len(own), "waited_s": waited_s, "tokens_out": tokens}
        own.append(request(one.sent_s, one.ended_s, **times))
    episodes = [
        msgspec.structs.replace(episode(*own), duration_s=own[-1].t_end_s - own[0].t_send_s)
        for own in asked.values()
    ]
    found = stretch(log_of(LANES, *episodes))
    statistics = run_statistics(
        measures_of(
            measure_case(CASE, GRADE, spent_by(one), summary_by=("model",)) for one in episodes
        ),
        n_planned=n,
        mode="ultra",
        alone=found.alone if found is not None else None,
    )
    truth = math.fsum(map(math.fsum, sizes_s)) / statistics.makespan_s
    return SimpleNamespace(statistics=statistics, stretch=found, truth=truth)


@pytest.mark.parametrize("slows_down", [knee, batches])
@pytest.mark.parametrize("most", KNEES)
def test_no_estimate_exceeds_the_truth(slows_down, most):
    for how in PLAYS:
        run = ran(slows_down(most), how)
        low, high = run.statistics.speedup_interval
        assert low <= run.truth <= high * (1 + 1e-9), (how, run)
        assert run.statistics.is_at_most == (low == 0)


def test_speedup_is_reported_if_load_does_not_slow_answers_down():
    runs = [ran(FIXED, how) for how in PLAYS]
    assert not any(run.stretch is not None and run.stretch.is_seen for run in runs)
    assert all(run.statistics.speedup == pytest.approx(run.truth, rel=0.1) for run in runs)
    given = [how for how, run in zip(PLAYS, runs, strict=True) if not run.statistics.is_at_most]
    # A run with one request a case always has the same load, so it cannot compare loads.
    assert {how for how in PLAYS if how[2] > 1 and not how[3]} - {(4, 300, 5, 0.0, 0.02)} <= {
        *given
    }


@pytest.mark.parametrize("how", [(16, 300, 6, 0.1, 0.0), (28, 300, 4, 0.3, 0.0)])
def test_speedup_is_reported_although_the_lowest_load_was_high(how):
    run = ran(FIXED, how)
    # The estimate extrapolates over a wider range (1 to few) than it observes (few to many).
    assert math.log(run.stretch.few) > math.log(run.stretch.many / run.stretch.few)
    assert run.stretch.alone > 1.1
    low, high = run.statistics.speedup_interval
    assert 0 < low <= run.truth <= high


@pytest.mark.parametrize("says_tokens", [False, True])
@pytest.mark.parametrize("seats", [16, 64])
def test_slowdown_under_load_is_estimated(seats, says_tokens):
    run = ran(knee(4), (seats, 300, 5, 0.5, 0.02), says_tokens=says_tokens)
    found = run.stretch
    true = max(1, found.many / 4) / max(1, found.few / 4)
    assert found.is_seen
    assert found.alone is None
    # A straight line through a knee is flatter than the curve beyond the knee.
    assert true / 2.1 < found.factor < true * 1.5
    assert found.low < found.factor < found.high
    assert run.statistics.speedup_interval[0] == 0


@pytest.mark.parametrize("how", [(4, 20, 1, 0.5, 0.0), (4, 300, 1, 0.5, 0.0)])
def test_few_answers_or_a_single_load_give_no_estimate(how):
    assert ran(FIXED, how).stretch is None


def test_servers_with_one_load_each_give_no_estimate():
    draw = random.Random(5)
    lanes = tuple(Lane(f"p/i{n}/k", "p", "m", f"i{n}", "k", ("p/k",), 1.0, 1.0) for n in (0, 1))
    for _ in range(40):
        at_once = [request(0.0, 5.0 + draw.random() * 0.005) for _ in range(24)]
        alone = [
            request(10.0 + n, 10.0014 + n + draw.random() * 0.0004, on=1, turn=24 + n)
            for n in range(12)
        ]
        tokens = [draw.choice([5, 28]) for _ in range(36)]
        asked = [
            msgspec.structs.replace(one, tokens_out=n, tokens_in=5)
            for one, n in zip(at_once + alone, tokens, strict=True)
        ]
        assert stretch(log_of(lanes, episode(*asked))) is None
