from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.plan.eta import Eta
from pytest_ultrapar.broker.protocol import BrokerStatus
from pytest_ultrapar.report.cluster_progress import ClusterProgress
from pytest_ultrapar.report.progress import (
    WINDOW_S,
    ProgressState,
    answered_per_s,
    awaited,
    collecting_line,
    graded_per_s,
    next_line_s,
    observe,
    observe_whole,
    progress_line,
    seconds_left,
    tables_line,
)
from pytest_ultrapar.report.text import duration

COUNTS = {"solved": 20, "partial": 5, "unsolved": 10, "infra": 2, "error": 1}
KEY = Eta(15.0, "lab/key0 (qps)")


def after(*looks, total=100, in_flight=15, eta=KEY, counts=None, all_answered=False):
    """The progress state after these looks: time, answered cases and graded cases."""
    state = ProgressState(total, eta=eta, eta_at_s=looks[-1][0])
    for now_s, answered, *graded in looks:
        n_graded = graded[0] if graded else answered
        state = observe(
            state,
            answered=answered,
            counts={"solved": n_graded} if counts is None else counts,
            in_flight=in_flight,
            now_s=now_s,
            all_answered=all_answered,
        )
    return state


def test_progress_line_shows_everything_if_it_fits():
    state = after((0.0, 0), (10.0, 40), counts=COUNTS)
    assert progress_line(state, 10.0, 200) == (
        "running: 38/100 graded, 20 solved, 5 partial, 10 unsolved, 2 infra, 1 error, 15 in flight,"
        " 4.0/s, ETA 15.0 s, slowest: lab/key0 (qps)"
    )


@given(st.integers(0, 200), st.integers(0, 10**6), st.integers(1, 10**6), st.floats(0.001, 1e5))
def test_progress_line_fits_any_width(width, done, more, seconds):
    state = after((0.0, 0), (seconds, done), total=done + more)
    assert len(progress_line(state, seconds, width)) <= width
    assert len(collecting_line(seconds, (seconds + 1, more), width)) <= width
    assert len(tables_line(done, done + more, seconds, width)) <= width


@given(st.integers(0, 200))
def test_reason_for_waiting_is_cut_and_not_omitted(width):
    state = replace(after((0.0, 0), (9.0, 0)), waits="waiting: instance lab/m cannot be reached")
    line = progress_line(state, 9.0, width)
    assert len(line) <= width
    assert "waiting: " in line or width < 45
    assert "be reached" in line or width < 80


@pytest.mark.parametrize(
    ("in_flight", "waiting", "trying", "said"),
    [
        (0, 0, 1, "1 case is waiting for a retry after refusals or failures"),
        (0, 0, 2, "2 cases are waiting for a retry after refusals or failures"),
        (1, 0, 1, ""),
        (0, 1, 1, ""),
        (0, 0, 0, ""),
    ],
)
def test_progress_says_if_only_refused_cases_are_left(in_flight, waiting, trying, said):
    status = BrokerStatus(1.0, in_flight, 4, 2, 28, [], waiting=waiting, trying=trying)
    assert awaited(status) == said


def test_progress_shows_no_rate_or_eta_before_the_first_answer():
    state = after((0.0, 0), (3.0, 0), counts={}, eta=None)
    line = progress_line(state, 3.0, 200)
    assert line == "running: 0/100 graded, 0 solved, 0 partial, 0 unsolved, 15 in flight"


def test_slow_grading_decides_the_eta():
    # 60 answers wait for grading at three a second.
    assert seconds_left(after((0.0, 0, 0), (10.0, 90, 30)), 10.0) == pytest.approx(70 / 3)
    # A few waiting answers do not count as a delay.
    assert seconds_left(after((0.0, 0, 0), (10.0, 40, 35)), 10.0) == pytest.approx(15)


def test_grading_is_a_separate_step_with_its_own_eta():
    state = after((0.0, 100, 10), (10.0, 100, 40), all_answered=True, in_flight=0)
    assert progress_line(state, 10.0, 200) == (
        "grading: 40/100 graded, 40 solved, 0 partial, 0 unsolved, 3.0/s, ETA 20.0 s"
    )


@pytest.mark.parametrize(("seconds", "most"), [(60, 6), (3600, 160), (86_400, 320)])
def test_log_of_a_long_run_has_few_lines(seconds, most):
    n, at_s = 0, next_line_s(0.0)
    while at_s <= seconds:
        n, at_s = n + 1, at_s + next_line_s(at_s)
    assert 5 <= n <= most


def test_progress_rate_covers_the_recent_past():
    looks = [(float(t), 10 * t, 5 * t) for t in range(61)]
    slow = [(60.0 + t, 600, 600) for t in range(1, 91)]
    state = after(*looks, *slow, total=10_000)
    assert answered_per_s(state, 150.0) is None
    assert graded_per_s(state, 150.0) is None
    busy = after(*looks, total=10_000)
    assert answered_per_s(busy, 60.0) == pytest.approx(10)
    assert graded_per_s(busy, 60.0) == pytest.approx(5)
    assert state.seen[-1][0] - state.seen[0][0] == pytest.approx(WINDOW_S)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0.20 s"),
        (12.34, "12.3 s"),
        (119.0, "119.0 s"),
        (245, "4 min 05 s"),
        (7199.9, "2 h 00 min"),
        (11520, "3 h 12 min"),
        (190_000, "2 d 04 h"),
    ],
)
def test_duration_is_short(seconds, text):
    assert duration(seconds) == text


WHOLE = ClusterProgress(3, 560, 120, 9, {"m": 431})


def of_several(waits="", n_before=100):
    state = after((0.0, 0), (10.0, 40), total=560, counts={"solved": 30, "infra": 2})
    share = "share 3 of 10 workers, 8 of 16 qps"
    for now_s, n_done in ((0.0, n_before), (10.0, WHOLE.n_done)):
        whole = replace(WHOLE, n_done=n_done)
        state = observe_whole(state, whole, share=share, waits=waits, now_s=now_s)
    return state


def test_progress_of_a_cluster_covers_all_hosts():
    assert progress_line(of_several(), 10.0, 200) == (
        "running on 3 hosts: 120/560 done, 2.0/s in total, ETA 3 min 40 s, 32 graded here, "
        "30 solved, 2 infra, 15 in flight, share 3 of 10 workers, 8 of 16 qps"
    )
    assert progress_line(of_several(), 10.0, 80) == (
        "running on 3 hosts: 120/560 done, ETA 3 min 40 s, 32 graded here"
    )


def test_waiting_host_shows_its_reason_first():
    waits = "waits: other hosts have all of key0's qps = 2"
    state = of_several(waits, n_before=120)
    line = progress_line(state, 10.0, 80)
    assert line == f"running on 3 hosts: 120/560 done, {waits}"
    assert "in flight" not in progress_line(state, 10.0, 200)


def pace(looks, **fields):
    """The progress line after a host's looks: seconds, cases done, and cases left per model."""
    state = ProgressState(200)
    for now_s, n_done, *unclaimed in looks:
        left = dict(zip("ab", unclaimed, strict=True))
        whole = replace(WHOLE, n_done=n_done, unclaimed=left, **fields)
        state = observe_whole(state, whole, share="", waits="", now_s=now_s)
    return progress_line(state, looks[-1][0], 200)


def test_eta_of_a_cluster_is_the_eta_of_its_last_model():
    # In 10 s, 40 cases ended. Four of them began on the slow model, which has 150 left.
    looks = [(0.0, 60, 276, 154), (10.0, 100, 240, 150)]
    assert f"ETA {duration(150 / 0.4)}" in pace(looks)
    # The model stays slow while few of its cases begin.
    looks += [(20.0 + n, 140 + n, 200 - n, 150) for n in range(40)]
    assert f"ETA {duration(150 / (4 / 59))}" in pace(looks)


def test_pace_of_a_model_counts_from_its_first_case():
    looks = [(float(n), 60 + n, 276 - n, 154) for n in range(40)]
    assert f"ETA {duration((560 - 99) / 1.0)}" in pace(looks)
    # The model has run for a second, at two cases a second.
    looks.append((40.0, 100, 236, 152))
    assert f"ETA {duration((560 - 100) / 1.0)}" in pace(looks)


def test_models_have_no_pace_if_groups_wait_for_each_other():
    looks = [(0.0, 60, 276, 154), (10.0, 100, 240, 150)]
    assert f"ETA {duration((560 - 100) / 4.0)}" in pace(looks, in_groups=True)
