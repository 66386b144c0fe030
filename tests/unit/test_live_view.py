"""The content of the live view: lanes, figures, and the number of lines that fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.protocol import BrokerStatus, EstimatedLimit, LaneStatus
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.report.live_view import (
    Failure,
    LiveView,
    ModelRow,
    Use,
    lane_rows,
    model_rows,
    projected,
    room,
)
from pytest_ultrapar.report.progress import ProgressState
from tests.pools import lane

KEY0 = Limit("p/key0", "key", workers=5, qps=10)
ROOM = Limit("p", "provider", workers=100)
LIMITS = {one.name: one for one in (KEY0, ROOM)}
LANES = [lane(f"i{n}", f"key{n % 2}", "p", f"p/key{n % 2}") for n in range(4)]


def status(of, **facts):
    told = {
        "state": "up",
        "reason": "",
        "in_flight": 0,
        "peak_in_flight": 0,
        "granted": 0,
        "n_ok": 0,
        "n_rate_limited": 0,
        "n_failed": 0,
        "waited_s": {},
    }
    return LaneStatus(of.lane_id, **told | facts)


def at(now_s, *statuses):
    return BrokerStatus(now_s, 0, 0, 0, 0, list(statuses))


def rows(now, before=None, lanes=LANES):
    return lane_rows(lanes, LIMITS, () if before is None else (before,), now)


def test_lane_shows_its_own_use_of_the_fullest_limit_on_its_path():
    now = at(
        10.0,
        status(LANES[0], in_flight=1, granted=40),
        status(LANES[2], in_flight=3, granted=60),
        status(LANES[1], in_flight=7, granted=10),
    )
    before = at(0.0, *(status(one) for one in LANES))
    found = {row.lane: row for row in rows(now, before)}
    assert found[LANES[0].lane_id].seats == Use(1, 5)
    assert found[LANES[0].lane_id].rate == Use(4.0, 10.0)
    assert found[LANES[2].lane_id].seats == Use(3, 5)
    # No limit is declared for key1, so only the provider's seats limit it.
    assert found[LANES[1].lane_id].seats == Use(7, 100)
    assert found[LANES[1].lane_id].rate == Use(1.0, None)


def test_idle_lane_of_a_busy_key_is_shown_as_idle():
    now = at(10.0, status(LANES[0], in_flight=5, granted=90), status(LANES[2]))
    found = {row.lane: row for row in rows(now, at(0.0, *(status(one) for one in LANES)))}
    assert found[LANES[0].lane_id].seats == Use(5, 5)
    assert found[LANES[2].lane_id].seats == Use(0, 5)
    assert found[LANES[2].lane_id].rate == Use(0.0, 10.0)


def test_estimated_limit_counts_if_the_provider_allows_less_than_declared():
    found = EstimatedLimit("p/key0", 2, 4.0, 1)
    now = at(10.0, status(LANES[0], in_flight=1, granted=20, estimated=found))
    row = rows(now, at(0.0, status(LANES[0])))[0]
    assert (row.seats, row.rate) == (Use(1, 2), Use(2.0, 4.0))


def test_failing_lanes_come_first_then_lanes_that_delay_requests():
    now = at(
        10.0,
        status(LANES[0]),
        status(LANES[1], state="out", reason="lane p/i1/key1 is gone"),
        status(LANES[2], waited_s={"p/key0": 30.0, "home": 1.0}),
        status(LANES[3], state="paused", reason="lane p/i3/key1 was rate limited"),
    )
    found = rows(now, at(0.0, status(LANES[2], waited_s={"home": 0.5})))
    assert [row.lane for row in found] == [LANES[n].lane_id for n in (3, 1, 2, 0)]
    assert [row.is_removed for row in found] == [False, True, False, False]
    assert [row.waits_for for row in found] == ["", "", "p/key0", ""]
    assert found[0].trouble == "lane p/i3/key1 was rate limited"


def test_model_has_the_solved_rate_with_its_interval():
    counts = {("b", "solved"): 6, ("b", "unsolved"): 2, ("b", "infra"): 1, ("gone", "solved"): 1}
    first, second, last = model_rows({"a": 4, "b": 20, "c": 0}, counts)
    assert first == ModelRow("a", 0, 4, 0, 0, None)
    assert second[:5] == ("b", 9, 20, 8, 6)
    # Wilson's interval for 6 of 8, as R's `prop.test(6, 8, correct = FALSE)` gives it.
    assert second.interval == pytest.approx((0.4093, 0.9285), abs=1e-4)
    assert last.model == "c"


def test_projected_cost_counts_each_model_by_its_own_cases():
    spent, done = {"costly": 10.0, "cheap": 1.0}, {"costly": 1, "cheap": 10}
    assert projected(spent, done, {"costly": 10, "cheap": 100}) == pytest.approx(110.0)
    # A model without known costs counts with the mean of all others.
    assert projected(spent, done, {"unknown": 11}) == pytest.approx(11.0)


def view(n_lanes, n_models, n_failures):
    one = rows(at(0.0, status(LANES[0])))[0]
    model = ModelRow("m", 0, 1, 0, 0, None)
    failure = Failure("test_it", "infra", "because")
    parts = [one] * n_lanes, [model] * n_models, [failure] * n_failures
    return LiveView(ProgressState(1), None, 0.0, 0, *parts, None, is_simulated=False)


@given(st.integers(0, 300), st.integers(0, 40), st.integers(0, 5), st.integers(0, 60))
def test_parts_never_get_more_lines_than_they_need_or_than_fit(
    n_lanes, n_models, n_failures, n_lines
):
    given_ = room(view(n_lanes, n_models, n_failures), n_lines)
    wanted = [n + 1 if n else 0 for n in (n_lanes, n_models, n_failures)]
    assert all(got <= want for got, want in zip(given_, wanted, strict=True))
    assert 1 not in given_
    assert sum(given_) <= n_lines
    if sum(wanted) <= n_lines:
        assert [*given_] == wanted
    else:
        # A part without lines so far needs two.
        assert sum(given_) >= n_lines - 1
