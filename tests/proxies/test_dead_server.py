"""A server that answers nothing but 503 is asked little, and the run ends as it always did."""

from __future__ import annotations

import threading

import pytest

from tests.proxies.fronts import Front, Nginx, at_work
from tests.proxies.judged_run import play

pytestmark = pytest.mark.slow

N = 60
PATIENCE_S = 12.0
GRACE_S = 20.0
"""For a busy machine; without the rule it tests, a run goes on for minutes."""
DEAD = Nginx(location="if (-f {flag}) { return 503; }")


def n_allowed(asked_s: float) -> float:
    """Requests of a run of N cases: a fifth more and ten, and two a minute from then on."""
    return 1.2 * N + 10 + 2 * asked_s / 60


def test_server_that_is_dead_from_the_start_is_asked_little(upstream, tmp_path):
    with at_work(DEAD, upstream, tmp_path / "proxy") as front:
        front.flag.touch()
        run = play(
            front, tmp_path, limit="workers = 20", n=N,
            options=(f"--ultrapar-episode-timeout={PATIENCE_S:g}",),
        )  # fmt: skip
    assert {outcome for outcome, _ in run.outcomes} == {"infra"}
    assert run.outcomes.total() == N
    assert {seen.status for seen in run.requests} == {503}
    assert len(run.requests) <= n_allowed(run.time_s)
    assert run.time_s <= PATIENCE_S + GRACE_S


def test_server_that_dies_in_the_middle_is_asked_little(upstream, tmp_path):
    with at_work(DEAD, upstream, tmp_path / "proxy") as front:
        killer = threading.Thread(target=_kill, args=[front, N // 3])
        killer.start()
        run = play(
            front, tmp_path, limit="workers = 4", n=N, mode="adaptive",
            options=(f"--ultrapar-episode-timeout={PATIENCE_S:g}",),
        )  # fmt: skip
        killer.join()
    assert {outcome for outcome, _ in run.outcomes} == {"solved", "infra"}
    assert run.outcomes.total() == N
    n_answered = sum(seen.status == 200 for seen in run.requests)
    assert run.outcomes["solved", None] == n_answered >= N // 3
    assert len(run.requests) <= n_allowed(run.time_s)
    assert run.time_s <= PATIENCE_S + GRACE_S


def _kill(front: Front, after: int) -> None:
    stop = threading.Event()
    while len(front.requests()) < after:
        stop.wait(0.02)
    front.flag.touch()
