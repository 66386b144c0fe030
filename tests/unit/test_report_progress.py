from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.report.numbers import duration, rate, times
from pytest_ultrapar.report.progress import (
    WINDOW_S,
    ProgressState,
    cases_per_s,
    observe,
    progress_line,
)

COUNTS = {"solved": 20, "partial": 5, "unsolved": 10, "infra": 2, "error": 1}


def after(*looks, total=100, counts=COUNTS, in_flight=15):
    state = ProgressState(total)
    for now_s, done in looks:
        state = observe(state, done=done, counts=counts, in_flight=in_flight, now_s=now_s)
    return state


def test_progress_line_says_everything_where_there_is_room():
    state = after((0.0, 0), (10.0, 40))
    assert progress_line(state, 10.0, 200) == (
        "40/100, 20 solved, 5 partial, 10 unsolved, 2 infra, 1 error, 15 in flight, 4.0/s,"
        " ETA 15.0 s"
    )


def test_progress_line_leaves_the_least_out_first():
    state = after((0.0, 0), (10.0, 40))
    lines = {progress_line(state, 10.0, width) for width in range(200)}
    by_length = sorted(lines, key=len)
    assert by_length[-3:] == [
        "40/100, 20 solved, 10 unsolved, 2 infra, 1 error, 15 in flight, ETA 15.0 s",
        "40/100, 20 solved, 5 partial, 10 unsolved, 2 infra, 1 error, 15 in flight, ETA 15.0 s",
        progress_line(state, 10.0, 200),
    ]
    assert "40/100, ETA 15.0 s" in lines


@given(st.integers(0, 200), st.integers(0, 10**6), st.integers(1, 10**6), st.floats(0.001, 1e5))
def test_progress_line_fits_any_width(width, done, more, seconds):
    state = after((0.0, 0), (seconds, done), total=done + more)
    assert len(progress_line(state, seconds, width)) <= width


def test_progress_says_no_rate_and_no_end_before_anything_has_ended():
    state = after((0.0, 0), (3.0, 0), counts={})
    line = progress_line(state, 3.0, 200)
    assert line == "0/100, 0 solved, 0 partial, 0 unsolved, 15 in flight"


def test_progress_done_has_no_end_to_wait_for():
    assert "ETA" not in progress_line(after((0.0, 0), (5.0, 100)), 5.0, 200)


def test_progress_rate_is_that_of_the_recent_past():
    looks = [(float(t), 10 * t) for t in range(61)] + [(60.0 + t, 600) for t in range(1, 91)]
    slow = after(*looks, total=10_000)
    assert cases_per_s(slow, 150.0) is None
    assert cases_per_s(after(*looks[:61], total=10_000), 60.0) == pytest.approx(10)
    assert slow.seen[-1][0] - slow.seen[0][0] == pytest.approx(WINDOW_S)


def test_progress_keeps_few_looks_however_often_it_looks():
    looks = [(t / 100, t) for t in range(10_000)]
    assert len(after(*looks, total=10**6).seen) <= 2 * WINDOW_S + 2


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
def test_duration_has_few_digits(seconds, text):
    assert duration(seconds) == text


def test_rate_and_times_have_few_digits():
    assert [rate(x) for x in (1332.6, 4, 0.125, 0.005)] == ["1,333/s", "4.0/s", "7.5/min", "18.0/h"]
    assert [times(x) for x in (297.5, 3.44)] == ["298x", "3.4x"]
