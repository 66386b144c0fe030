"""Two pytest runs on one host that share a key, judged by the log of the server that both use."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.coordinator.claims.key_lock import Holder, KeyLocks, take_all
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.testing import ServerLog, read_server_log
from tests.family import family_of, signal_all
from tests.light import PYTEST
from tests.plugin.conftest import CANARY

POOL = """
schema = 1
[[provider]]
name = "{provider}"
api = "openai"
base_url = "{url}"
keys = [{{ name = "{key}", env = "{env}" }}]
{limits}
[[provider.model]]
name = "{model}"
"""
SERVED = """
[[provider.model]]
name = "second"
"""
SUITE = """
import asyncio
from pathlib import Path

import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, number) -> str:
    while number == 0 and Path("held").exists():
        await asyncio.sleep(0.02)
    return (await llm.chat([{{"role": "user", "content": f"{{number}}"}}])).text

@pytest.mark.parametrize("number", range({n}))
def test_it(answer): pass
"""
QPS = 10


class Host:
    """A server with its own log, and pytest runs beside each other that send to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locks = folder / "locks"
        self._started: list[subprocess.Popen[bytes]] = []
        text = POOL.format(
            provider="lab",
            url="https://example.invalid/v1",
            key="k",
            env="E",
            limits="",
            model="first",
        )
        path = folder / "served.toml"
        path.write_text(text + SERVED)
        pool = load_pool(path, environ={}, overrides=Overrides())
        self._log = folder / "server.log"
        self.server = SimulatorProcess.start(pool, log_path=self._log, tokens={"lab/k": CANARY})

    def hold(self, name: str) -> None:
        """Have the run `name`, once started, go on until it is released."""
        self.folder.joinpath(name).mkdir()
        self.folder.joinpath(name, "held").touch()

    def release(self, name: str) -> None:
        self.folder.joinpath(name, "held").unlink()

    def start(self, name: str, n: int, *options: str) -> subprocess.Popen[bytes]:
        """A run on the model `name`, in whose pool provider, key and variable have other names."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        folder.joinpath("pool.toml").write_text(
            POOL.format(
                provider=f"p-{name}",
                url=self.server.base_url("lab"),
                key=f"k-{name}",
                env=f"KEY_OF_{name.upper()}",
                limits=f"per_key = {{ workers = 20, qps = {QPS} }}",
                model=name,
            )
        )
        folder.joinpath("test_suite.py").write_text(SUITE.format(n=n))
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environ |= {f"KEY_OF_{name.upper()}": CANARY, "ULTRAPAR_LOCK_DIR": str(self.locks)}
        with self.output(name).open("wb") as out:
            process = subprocess.Popen(
                [*PYTEST, "--ultrapar-pool=pool.toml", *options],
                cwd=folder,
                env=environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def output(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def log(self) -> ServerLog:
        return read_server_log(self._log)

    def arrivals_s(self, model: str) -> list[float]:
        return [row.t_arrival_s for row in self.log().requests if row.model == model]

    def stop(self) -> None:
        family = []
        for process in self._started:
            if process.poll() is None:
                family += family_of(process.pid)
        signal_all(family, signal.SIGKILL)
        for process in self._started:
            process.wait()
        self.server.stop()


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.stop()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    pause = threading.Event()
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        pause.wait(0.02)


def is_waiting(host: Host, name: str) -> bool:
    return "waiting for key" in host.output(name).read_text()


def holder_of(lock: Path) -> int | None:
    """Who has the key or had it last; None in the moment in which somebody writes it."""
    try:
        return msgspec.json.decode(lock.read_bytes(), type=Holder).pid
    except msgspec.DecodeError:
        return None


@pytest.mark.slow
def test_two_runs_at_once_never_send_more_than_one_may(host):
    host.hold("first")
    first = host.start("first", 40, "-n0")
    wait_until(lambda: len(host.arrivals_s("first")) > 2)
    second = host.start("second", 40, "-n0")
    wait_until(lambda: is_waiting(host, "second"))
    host.release("first")
    for name, process in (("first", first), ("second", second)):
        assert process.wait(300) == 0, host.output(name).read_text()
    log = host.log()
    assert len(host.arrivals_s("first")) == len(host.arrivals_s("second")) == 40
    assert log.max_in_window(1.0) <= QPS + 1
    assert max(host.arrivals_s("first")) < min(host.arrivals_s("second"))
    said = host.output("second").read_text()
    who = f"the run with process id {first.pid} (results in {host.folder / 'first' / '.ultrapar'}"
    assert f"ultrapar: waiting for key p-second/k-second, which is in use by {who}" in said
    assert "ultrapar: waited " in said
    assert "ultrapar: waited" not in host.output("first").read_text()
    assert all(CANARY.encode() not in path.read_bytes() for path in host.locks.iterdir())


@pytest.mark.slow
def test_killed_run_lets_the_next_go_on_without_doubling_the_rate(host):
    host.hold("first")
    first = host.start("first", 300, "-n0")
    wait_until(lambda: len(host.arrivals_s("first")) > 12)
    second = host.start("second", 30, "-n0")
    wait_until(lambda: is_waiting(host, "second"))
    (lock,) = host.locks.iterdir()
    assert holder_of(lock) == first.pid
    first.send_signal(signal.SIGKILL)
    wait_until(lambda: holder_of(lock) == second.pid)
    assert second.wait(300) == 0, host.output("second").read_text()
    assert len(host.arrivals_s("second")) == 30
    assert host.log().max_in_window(1.0) <= QPS + 1


@pytest.fixture
def held(project) -> KeyLocks:
    """The key of the project, in the hands of this process."""
    name = key_identity(project.server.base_url, f"{CANARY}-0")
    holder = Holder(4321, "/runs/other", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    locks = take_all(project.locks, [name], holder)
    assert isinstance(locks, KeyLocks)
    yield locks
    locks.give_back({})


def test_key_in_use_is_refused_by_name_and_holder(project, held):
    project.suite('\n@pytest.mark.parametrize("prompt", ["say a"])\ndef test_it(answer): pass\n')
    result = project.run("-n0", "--ultrapar-key-lock=fail")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: key p/key0 is in use by the run with process id 4321 (results in /runs/other, "
            "since 2026-01-02 03:04:05 UTC); *--ultrapar-key-lock*"
        ]
    )
    assert project.server.prompts == []


def test_fault_of_a_suite_is_said_before_any_wait_for_a_key(project, held):
    project.suite(
        '\n@pytest.mark.ultrapar(model="m")\n@pytest.mark.parametrize("prompt", ["say a"])\n'
        "def test_it(answer): pass\n"
    )
    result = project.run("-n0", "--ultrapar-key-lock=fail")
    assert result.ret == 4
    assert "mark ultrapar(...) got model" in result.stderr.str()
    assert "in use" not in result.stderr.str()


def test_error_of_collection_is_shown_before_any_wait_for_a_key(project, held, workers):
    project.suite('\n@pytest.mark.parametrize("prompt", ["say a"])\ndef test_it(answer): pass\n')
    project.pytester.path.joinpath("test_broken.py").write_text("import no_such_module\n")
    result = project.run(workers, "--ultrapar-key-lock=fail")
    assert result.ret == 2
    assert "No module named 'no_such_module'" in result.stdout.str()
    assert "Interrupted: 1 error during collection" in result.stdout.str()
    assert "in use" not in result.stderr.str()
    assert not list(project.pytester.path.glob(".ultrapar/2*"))


@pytest.mark.parametrize("option", ["--ultrapar-plan", "--collect-only", "--setup-plan"])
def test_looking_takes_no_key(project, held, option):
    project.suite('\n@pytest.mark.parametrize("prompt", ["say a"])\ndef test_it(answer): pass\n')
    assert project.run("-n0", option).ret == 0
