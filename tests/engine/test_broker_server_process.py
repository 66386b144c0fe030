"""The broker's process: its start, its visible traces, its end."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pytest_ultrapar.broker import process
from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.pool.model import Limit
from tests.engine.broker_at_work import PATIENCE_S, POOL, running
from tests.pools import lane, pool

# A controller that starts the broker, prints its place, and waits to be killed.
CONTROLLER = """
import json, sys
from pathlib import Path
from pytest_ultrapar.broker.process import BrokerProcess
from tests.engine.test_broker_server_process import POOL, BrokerDirectory, BrokerSettings
broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(Path(sys.argv[1])))
print(json.dumps([broker.pid, str(broker.path)]), flush=True)
sys.stdin.read()
"""


def wait_gone(pid: int) -> None:
    """Wait until a process has ended, reaped or not."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], PATIENCE_S)[0], "the process still exists"
    finally:
        os.close(handle)


def test_process_serves_until_stopped_and_leaves_nothing(tmp_path):
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))
    client = BlockingBrokerClient(broker.path, broker.token)
    assert client.status().lanes[0].lane == "p/a/k0"
    client.close()
    broker.stop()
    broker.stop()
    assert not broker.is_alive
    assert list(tmp_path.iterdir()) == []


def test_damaged_memory_of_a_day_is_refused_in_one_sentence(tmp_path):
    limited = pool([lane("a", "k0", "k0")], Limit("k0", "key", 1, rpd=9))
    day = DailyLimit("k0", "rpd", 60.0, "requests-x", str(tmp_path))
    day.memory.path.write_text("nothing of ours")
    with pytest.raises(ConfigError) as refused:
        BrokerProcess.start(BrokerSettings(limited, days=(day,)), BrokerDirectory.make(tmp_path))
    said = str(refused.value)
    assert said.startswith(f"{day.memory.path}, which counts requests per day for k0,")
    assert "\n" not in said
    assert [path.name for path in tmp_path.iterdir()] == [day.memory.path.name]


def test_socket_is_in_a_directory_that_only_its_user_may_enter(tmp_path):
    with running(tmp_path) as broker:
        assert broker.path.parent.parent == tmp_path.resolve()
        assert stat.S_IMODE(broker.path.parent.stat().st_mode) == 0o700


def test_socket_of_a_run_with_a_long_path_goes_to_the_temporary_directory(tmp_path):
    deep = tmp_path.joinpath(*["a-rather-long-name-for-a-directory"] * 4)
    deep.mkdir(parents=True)
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(deep))
    try:
        assert len(os.fsencode(broker.path)) <= process.MAX_PATH_BYTES
        assert stat.S_IMODE(broker.path.parent.stat().st_mode) == 0o700
        BlockingBrokerClient(broker.path, broker.token).close()
        assert list(deep.iterdir()) == []
    finally:
        broker.stop()
    assert not broker.path.parent.exists()


def test_token_and_keys_are_in_no_argument_variable_or_repr(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-canary")
    with running(tmp_path) as broker:
        process = psutil.Process(broker.pid)
        shown = " ".join(process.cmdline()) + json.dumps(process.environ()) + repr(broker)
        assert broker.token not in shown
        assert "sk-canary" not in shown


def test_process_ends_immediately_when_its_controller_is_killed(tmp_path):
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    pid, path = json.loads(controller.stdout.readline())
    assert psutil.pid_exists(pid)
    controller.kill()
    controller.wait(PATIENCE_S)
    controller.stdin.close()
    controller.stdout.close()
    wait_gone(pid)
    assert not Path(path).parent.exists()


def test_interrupt_of_the_terminal_does_not_end_the_process(tmp_path):
    with running(tmp_path) as broker:
        os.kill(broker.pid, signal.SIGINT)
        client = BlockingBrokerClient(broker.path, broker.token)
        assert client.status().in_flight == 0
        client.close()


def test_terminated_process_ends(tmp_path):
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))
    os.kill(broker.pid, signal.SIGTERM)
    wait_gone(broker.pid)
    assert not broker.is_alive
    broker.stop()


def test_process_that_cannot_start_gives_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "SERVER_MODULE", "pytest_ultrapar.broker.nowhere")
    with pytest.raises(UltraparError, match="No module named pytest_ultrapar"):
        BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_process_that_is_killed_as_it_starts_is_reported_as_killed(tmp_path, monkeypatch):
    dies = tmp_path / "dies_as_it_starts.py"
    dies.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(process, "SERVER_MODULE", dies.stem)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UltraparError, match="ended before it was ready: signal 9; it printed"):
        BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))


def test_broker_does_not_import_modules_of_the_users_directory(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong msgspec')")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(run))
    broker.stop()


def test_blocking_client_raises_when_its_broker_is_gone(tmp_path):
    broker = BrokerProcess.start(BrokerSettings(POOL), BrokerDirectory.make(tmp_path))
    client = BlockingBrokerClient(broker.path, broker.token)
    broker.stop()
    with pytest.raises(ConnectionError, match="the broker is gone"):
        client.status()
    with pytest.raises(ConnectionError, match="no broker is listening"):
        BlockingBrokerClient(broker.path, broker.token)
