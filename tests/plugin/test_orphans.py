"""A killed worker, and a server that continues its requests: judged by the server's work."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter

import pytest

pytestmark = pytest.mark.slow

SEATS = 20
TAKES_S = 12
"""Longer than the grace period of a lane that gets no answers."""
SUITE = f"""
import os
from pathlib import Path
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    Path(f"{{prompt}}.pid").write_text(str(os.getpid()))
    return (await llm.chat([{{"role": "user", "content": prompt}}])).text

@pytest.mark.parametrize("prompt", [f"slow {TAKES_S} {{n}}" for n in range({2 * SEATS})])
def test_it(answer): pass
"""


class Killer(threading.Thread):
    """Kill the worker of the last request of the second round, when all are in progress."""

    def __init__(self, project) -> None:
        super().__init__()
        self._project = project
        self.has_killed = False

    def run(self) -> None:
        server = self._project.server
        if server.wait_for(lambda prompts: len(prompts) == 2 * SEATS, 120):
            pid = self._project.pytester.path / f"{server.prompts[2 * SEATS - 1]}.pid"
            os.kill(int(pid.read_text()), signal.SIGKILL)
            self.has_killed = True


def test_seats_of_a_killed_worker_stay_in_use_while_the_server_works_on_its_requests(project):
    project.write_pool(seats=SEATS, timeout_s=60)
    project.pytester.path.joinpath("test_suite.py").write_text(SUITE)
    killer = Killer(project)
    killer.start()
    result = project.run("-n2")
    killer.join()
    assert killer.has_killed, result.stdout.str()
    assert result.ret == 0, result.stdout.str()
    assert Counter(row["outcome"] for row in project.rows()) == {"solved": 2 * SEATS}
    assert len(project.server.prompts) > 2 * SEATS
    assert project.server.work.most == SEATS
