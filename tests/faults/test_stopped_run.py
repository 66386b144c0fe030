"""Workers and controllers that are stopped, interrupted or ended: rows 13 and 14."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.family import workers_of
from tests.faults.byte_faults import after
from tests.faults.played import SEATS, SUITE
from tests.plugin.conftest import CANARY
from tests.plugin.test_interrupt import start
from tests.running import Running, wait_until

__all__ = ["start"]

pytestmark = pytest.mark.slow

N_CASES = 120


def begin(project, start, workers: str = "-n2", timeout_s: float = 5) -> Running:
    """Start a run of cases that take a tenth of a second, and wait until some have been sent."""
    project.server.faults["work"] = after(0.1)
    project.write_pool(keys=3, timeout_s=timeout_s)
    project.suite(SUITE.format(prompts=[f"work {number}" for number in range(N_CASES)]))
    running = start(workers)
    assert project.server.log.wait_for(30)
    running.note_family()
    return running


def test_worker_that_stops_for_a_while_costs_no_case_and_exceeds_no_limit(project, start):
    # Longer than its leases: the other worker may get its seats before it continues.
    running = begin(project, start, timeout_s=1)
    victim = workers_of(running.process.pid)[0]
    victim.send_signal(signal.SIGSTOP)
    timer = threading.Timer(4.0, victim.send_signal, [signal.SIGCONT])
    timer.start()
    code, output = running.wait()
    timer.join()
    assert code == 0, output
    assert set(project.outcomes().values()) == {"solved"}
    assert len(project.rows()) == N_CASES
    assert "Traceback" not in output
    judge = project.server.log.judge()
    for n in range(3):
        assert judge.max_in_flight(key=f"key{n}") <= SEATS
    assert running.left_behind() == []


def test_worker_that_stops_forever_is_killed_when_the_run_is_ended(project, start):
    running = begin(project, start)
    victim = workers_of(running.process.pid)[0]
    victim.send_signal(signal.SIGSTOP)
    # The other worker finishes its cases.
    wait_until(lambda: len(project.server.log.counts()) >= N_CASES - 3 * SEATS * 2)
    running.interrupt()
    code, output = running.wait()
    assert code == 2, output
    assert running.left_behind() == []
    assert "Traceback" not in output


def test_controller_that_is_terminated_leaves_no_process_behind(project, start, workers):
    running = begin(project, start, workers)
    running.process.send_signal(signal.SIGTERM)
    code, output = running.wait()
    assert code != 0
    assert running.left_behind() == []
    project.finish(N_CASES)
    # At most the requests in flight were paid for twice.
    assert len(project.server.log) <= N_CASES + 3 * SEATS
    assert CANARY not in output


def test_second_interrupt_ends_immediately_and_resume_completes(project, start):
    running = begin(project, start)
    running.interrupt("group")
    running.interrupt("group")
    code, output = running.wait()
    assert code != 0, output
    assert running.left_behind() == []
    project.finish(N_CASES)
