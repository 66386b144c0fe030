"""Rates at providers that count them differently, judged by the requests that each accepts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import pytest

from tests.faults.byte_faults import Asked, Fault, refuse
from tests.plugin.conftest import cases

pytestmark = pytest.mark.slow

N = 200
Judge = Callable[[Asked], Fault | None]
TOO_MUCH = refuse(429, code="rate_limit_exceeded", message="rate limit reached")


def any_window(most: int, window_s: float) -> Judge:
    """Accept this many requests in any window, and not one more."""
    inside: deque[float] = deque()

    def judge(asked: Asked) -> Fault | None:
        while inside and inside[0] + window_s <= asked.t_s:
            inside.popleft()
        if len(inside) >= most:
            return TOO_MUCH
        inside.append(asked.t_s)
        return None

    return judge


def slices(most: int, slice_s: float) -> Judge:
    """Accept this many requests between two ticks of a clock."""
    counted: Counter[int] = Counter()

    def judge(asked: Asked) -> Fault | None:
        tick = int(asked.t_s / slice_s)
        if counted[tick] >= most:
            return TOO_MUCH
        counted[tick] += 1
        return None

    return judge


@pytest.mark.parametrize(
    ("limit", "judge"),
    [
        pytest.param("qps = 20", any_window(20, 1.0), id="qps, any second"),
        pytest.param("qps = 20", slices(20, 1.0), id="qps, whole seconds"),
        pytest.param("rpm = 1200", any_window(1200, 60.0), id="rpm, any minute"),
        pytest.param("rpm = 1200", slices(20, 1.0), id="rpm, slices of 1 s"),
        pytest.param("rpm = 1200", slices(200, 10.0), id="rpm, slices of 10 s"),
    ],
)
def test_few_requests_are_refused_with_each_way_of_counting(project, limit, judge):
    project.write_pool(keys=1, key=f", {limit}")
    project.suite(cases(N))
    project.server.weather = judge
    assert project.run("-n0").ret == 0
    requests = project.server.log.requests
    refused = [one for one in requests if one.status == 429]
    assert len(requests) - len(refused) == N
    # The first refusal teaches the run; on a busy machine the provider's own clock may be late.
    assert len(refused) <= 10
