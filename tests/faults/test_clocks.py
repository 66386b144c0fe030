"""Clocks that step and processes that stall: row 12 of the catalogue."""

from __future__ import annotations

import email.utils
import time

import pytest

from tests.faults.byte_faults import Fault, refuse
from tests.faults.played import SEATS, SUITE, run

QPS = 20
STEPPING = """
import itertools

from pytest_ultrapar.system import clock

real, done = clock.clock_gettime, itertools.count()
offset_s = 0.0
walls = (clock._fine, clock._CLOCK_REALTIME_COARSE)
clock.clock_gettime = lambda which: real(which) + (offset_s if which in walls else 0)

def pytest_runtest_logfinish():
    # After some cases the wall clock jumps ahead, and later back beyond its start.
    global offset_s
    number = next(done)
    offset_s = 0.0 if number < 10 else {first} if number < 25 else -{first}

def pytest_unconfigure():
    clock.clock_gettime = real
"""
STALLING = """
import time

@prefetch
async def answer(llm, prompt) -> str:
    text = (await llm.chat([{{"role": "user", "content": prompt}}])).text
    if prompt.endswith(" 10"):
        end_s = time.monotonic() + 1.5
        while time.monotonic() < end_s:
            pass
    return text

@pytest.mark.parametrize("prompt", {prompts!r})
def test_it(answer): pass
"""


def play_limited(project, suite: str, n: int):
    prompts = [f"work {number}" for number in range(n)]
    project.write_pool(key=f", qps = {QPS}")
    project.suite(suite.format(prompts=prompts))
    return run(project, prompts)


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_step_of_the_wall_clock_changes_no_limit_and_no_duration(project, step_s):
    project.pytester.path.joinpath("conftest.py").write_text(STEPPING.format(first=step_s))
    played = play_limited(project, SUITE, 50)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 50}
    # Rates hold. `run` checks that no request waited for an hour.
    log = project.server.log
    assert log.judge().max_in_window(1.0) <= QPS + 1
    assert log.requests[-1].t_s - log.requests[0].t_s >= 50 / QPS - 1
    for row in played.rows.values():
        assert 0 <= row["duration_s"] < 60
        assert row["ended_at"] >= row["started_at"]


@pytest.mark.slow
def test_process_that_stalls_sends_no_burst_afterwards(project):
    played = play_limited(project, STALLING, 50)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 50}
    log = project.server.log
    assert log.judge().max_in_window(1.0) <= QPS + 1
    stalls_s = [b.t_s - a.t_s for a, b in zip(log.requests, log.requests[1:], strict=False)]
    assert max(stalls_s) > 1


@pytest.mark.slow
def test_retry_date_of_a_server_with_another_clock_does_not_hang_a_request(project):
    """By our clock, one server asks to wait for an hour, and one until a time in the past."""

    def of_another_hour(ahead_s: float) -> Fault:
        moment = email.utils.formatdate(time.time() + ahead_s, usegmt=True)
        return refuse(429, b"retry-after: " + moment.encode())

    strange = {"0": of_another_hour(3600), "1": of_another_hour(-3600)}
    project.server.weather = lambda asked: strange.get(asked.token[-1])
    prompts = [f"work {number}" for number in range(30)]
    project.write_pool(keys=3)
    project.suite(SUITE.format(prompts=prompts))
    played = run(project, prompts)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 30}
    # The requests in flight, and a check.
    assert sum(seen.key == "key0" for seen in project.server.log.requests) <= SEATS + 1
