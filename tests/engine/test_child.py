"""Child processes end with the process that starts them, and report why they cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

GONE_WITHIN_S = 60.0
PARENT = """
import os, signal, sys
from pathlib import Path
from tests.engine.test_broker_server_process import POOL, BrokerDirectory, BrokerSettings
from tests.simulated_pool import simulated_pool

kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "broker":
    from pytest_ultrapar.broker.process import BrokerProcess
    child = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(folder))
elif kind == "simulator":
    from pytest_ultrapar.simulator.process import SimulatorProcess
    child = SimulatorProcess.start(simulated_pool(), log_path=folder / "server.log")
    child.port
else:
    from pytest_ultrapar.analysis.compaction_process import CompactionProcess
    child = CompactionProcess.start(folder)._child
forked = os.fork()
if forked:
    print(child.pid, forked, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("kind", ["broker", "simulator", "compaction"])
def test_child_ends_with_a_killed_parent_whose_fork_holds_its_pipe(tmp_path, kind):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, kind, tmp_path],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with parent:
        child_pid, forked_pid = map(int, parent.stdout.readline().split())
        child = psutil.Process(child_pid)
        parent.kill()
    try:
        child.wait(GONE_WITHIN_S)
    finally:
        os.kill(forked_pid, signal.SIGKILL)
