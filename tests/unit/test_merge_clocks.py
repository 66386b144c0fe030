"""Times of hosts on one clock, by the time of the server that they called."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.merge.clocks import TICK_S, ServerClock
from pytest_ultrapar.merge.write_merged import merge
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.store.clock_stamps import CLOCKS_NAME, Stamp, StampFile, read_stamps
from tests.unit.finished_run import LANE, NOW, case, episode, grade, make_run, write_journal


def stamps(ahead_s, times_s, to_s=0.002, back_s=0.002, *, epoch=1, lag_ms=0):
    """Calls of a host whose clock is behind the server's; each call needs `to_s` to arrive."""
    return [
        Stamp(epoch, lag_ms, int((at_s + to_s + ahead_s) * 1000), at_s, at_s + to_s + back_s)
        for at_s in times_s
    ]


@given(
    st.lists(st.floats(-1e5, 1e5), min_size=2, max_size=4),
    st.lists(st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)), min_size=4, max_size=4),
    st.floats(0, 100),
)
def test_moved_times_are_within_the_stated_error(aheads_s, delays_s, at_s):
    hosts = [
        stamps(ahead_s, range(1, 100, 7), *delay)
        for ahead_s, delay in zip(aheads_s, delays_s, strict=False)
    ]
    clock = ServerClock(hosts)
    assert not clock.lacks
    for number, ahead_s in enumerate(aheads_s):
        # The same moment of the server on the clocks of both hosts.
        own_s = at_s - ahead_s
        first_s = at_s - aheads_s[0]
        moved_s = own_s + clock.shift(number, own_s)
        assert abs(moved_s - first_s) <= clock.error_s + TICK_S


def test_fast_call_is_more_exact_than_a_slow_one():
    slow = stamps(100.0, [1, 3], 0.2, 0.0)
    both = ServerClock([stamps(0.0, [1]), [*slow, *stamps(100.0, [2])]])
    assert both.error_s == pytest.approx(0.005)


def test_step_of_a_clock_is_part_of_the_error():
    clock = ServerClock([stamps(0.0, [1, 50]), [*stamps(5.0, [1]), *stamps(5.4, [50])]])
    assert clock.error_s > 0.39


def test_restarted_ledger_continues_on_the_clock_of_the_server():
    """The ledger starts again and may not know how much time passed; the clock does not stop."""
    first = [*stamps(0.0, [1, 2]), *stamps(-0.8, [4, 9], lag_ms=800)]
    clock = ServerClock([first, stamps(20.0, [30], epoch=2)])
    assert clock.error_s < 0.02
    assert 30.0 + clock.shift(1, 30.0) == pytest.approx(50.0, abs=0.01)


def test_fastest_call_of_each_stretch_is_noted(tmp_path):
    file = StampFile(tmp_path / CLOCKS_NAME)
    for n in range(100_000):
        file.add(Stamp(1 + n // 99_999, 0, n, n * 1.0, n + 0.5 - n % 7 * 0.01))
    file.flush()
    found = read_stamps(tmp_path)
    assert 2_000 < len(found) < 6_000
    assert found[-1].epoch == 2
    assert all(one.begun_s < other.begun_s for one, other in pairwise(found))
    (tmp_path / CLOCKS_NAME).write_bytes(b'[1,0,2,3.0,4.0]\n[1,2\nxx\n["a"]\n')
    assert read_stamps(tmp_path) == [Stamp(1, 0, 2, 3.0, 4.0)]


def host(path, number, begin_s, ahead_s, *, noted=True, **limits):
    """A host of a run whose case took a second; its clock is behind the server's."""
    lane = replace(LANE, limits=("azure/key0",))
    run = make_run(
        path, [case(0), case(1), case(2)], cluster_run="r", host=path.name,
        pool_lanes=(lane,), pool_limits=(Limit("azure/key0", "key", **(limits or {"workers": 1})),),
    )  # fmt: skip
    write_journal(run, "gw0", episode(number, begin_s, begin_s + 1), grade(number))
    if noted:
        lines = msgspec.json.Encoder().encode_lines(stamps(ahead_s, [begin_s - 1, begin_s + 2]))
        (run.path / CLOCKS_NAME).write_bytes(lines)
    return run.path


def test_limits_are_audited_over_all_hosts_by_the_servers_time(tmp_path):
    """The second began after the first had ended by its own clock, and before by the server's."""
    a, b = host(tmp_path / "a", 0, 10.0, 0.0), host(tmp_path / "b", 1, 20.0, -9.5)
    made = merge([str(a), str(b)], tmp_path / "w", NOW)
    (audited,) = made.summary.audit
    assert (audited.in_flight, audited.passed) == (2, ("workers",))
    assert made.manifest.merged.clock_error_s == pytest.approx(0.005)
    assert "(error: at most 5 ms)" in (tmp_path / "w" / "report.md").read_text("utf-8")


def test_overlap_within_the_clock_error_proves_no_excess(tmp_path):
    a, b = host(tmp_path / "a", 0, 10.0, 0.0), host(tmp_path / "b", 1, 20.0, -9.001)
    made = merge([str(a), str(b)], tmp_path / "w", NOW)
    (audited,) = made.summary.audit
    assert (audited.in_flight, audited.passed) == (2, ())


@pytest.mark.parametrize("limits", [{"qps": 1}, {"qps": 1, "tpm": 5}])
def test_window_shorter_than_the_clock_error_proves_no_excess(tmp_path, limits):
    runs = [host(tmp_path / name, n, 10.0 + n, 0.0, **limits) for n, name in enumerate("ab")]
    for run in runs:
        set_back = [*stamps(0.0, [9]), *stamps(-40.0, [13])]
        (run / CLOCKS_NAME).write_bytes(msgspec.json.Encoder().encode_lines(set_back))
    made = merge([str(run) for run in runs], tmp_path / "w", NOW)
    (audited,) = made.summary.audit
    assert made.manifest.merged.clock_error_s > 60
    assert audited.passed == ()


def test_host_without_stamps_is_reported_and_audited_by_itself(tmp_path):
    a, b = host(tmp_path / "a", 0, 10.0, 0.0), host(tmp_path / "b", 1, 20.0, 0.0, noted=False)
    made = merge([str(a), str(b)], tmp_path / "w", NOW)
    assert made.manifest.merged.clock_error_s is None
    said = (tmp_path / "w" / "report.md").read_text("utf-8")
    assert "1 of 2 hosts did not record the server's time" in said
