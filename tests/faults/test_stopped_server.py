"""A stopped server process, as by SIGSTOP: the kernel accepts connections, no answer comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.faults.played import KEY_NAMES, SEATS, play
from tests.scripted_server import ScriptedProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path) -> Iterator[ScriptedProcess]:
    process = ScriptedProcess(tmp_path, KEY_NAMES)
    yield process
    process.stop()


def test_run_ends_by_the_deadlines_when_its_server_is_stopped(project, workers):
    project.server.halt()
    prompts = [f"say {n}" for n in range(SEATS)]
    # `play` checks how long after the episodes' deadline the run ends.
    played = play(project, prompts, workers, timeout_s=30, episode_timeout_s=3, judged=False)
    assert played.outcomes() == {("infra", "timeout"): SEATS}
    assert all(set(played.billed(prompt)) == {True} for prompt in prompts)


class Halt:
    """Stop a server once it has seen some requests, and let it continue later."""

    def __init__(self, server: ScriptedProcess, *, at: int, for_s: float) -> None:
        self._server, self._at, self._for_s = server, at, for_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while len(self._server.log) < self._at:
            if self._over.wait(0.02):
                return
        self._server.halt()
        self._over.wait(self._for_s)
        self._server.go_on()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_server_that_stops_for_a_while_costs_no_case(project):
    prompts = [f"work {n}" for n in range(100)]
    with Halt(project.server, at=40, for_s=1.5):
        played = play(project, prompts, timeout_s=1, judged=False)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 100}
    late = [a for found in played.attempts.values() for a in found if a["outcome"] != "ok"]
    assert late
    assert {(a["outcome"], a["maybe_billed"]) for a in late} == {("timeout", True)}
    assert len(late) <= 2 * SEATS


def test_server_that_stops_forever_ends_the_run_and_loses_no_answer(project):
    prompts = [f"work {n}" for n in range(100)]
    with Halt(project.server, at=20, for_s=60):
        played = play(project, prompts, timeout_s=0.5, episode_timeout_s=4, judged=False)
    outcomes = played.outcomes()
    assert outcomes["solved", None] >= 20 - 2 * SEATS
    assert {outcome for outcome, _ in outcomes} == {"solved", "infra"}
