"""Two pytest runs on one machine that share a key, judged by the log of their server."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.coordinator.keys.key_lock_file import Holder, KeyLocks, take_all
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.testing import ServerLog, read_server_log
from tests.plugin.conftest import CANARY, cases
from tests.running import Running, wait_until
from tests.simulated_pool import pool_text, serving

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
SUITE = """
import asyncio
from contextlib import ExitStack
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
    """A server with its own log, and pytest runs that send to it at the same time."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.locks = folder / "locks"
        self._log = folder / "server.log"
        tokens = {"lab/key0": CANARY}
        text = pool_text("", name="lab", models=["first", "second"])
        server = serving(text, self._log, tokens=tokens)
        self.server = stack.enter_context(server)

    def hold(self, name: str) -> None:
        """Let the run `name`, once started, continue until it is released."""
        self.folder.joinpath(name).mkdir()
        self.folder.joinpath(name, "held").touch()

    def release(self, name: str) -> None:
        self.folder.joinpath(name, "held").unlink()

    def start(self, name: str, n: int, *options: str) -> Running:
        """Start a run on the model `name`; the names of provider, key and variable differ, too."""
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
        variables = {f"KEY_OF_{name.upper()}": CANARY, "ULTRAPAR_LOCK_DIR": str(self.locks)}
        return self.stack.enter_context(Running(folder, *options, **variables))

    def log(self) -> ServerLog:
        return read_server_log(self._log)

    def arrivals_s(self, model: str) -> list[float]:
        return [row.t_arrival_s for row in self.log().requests if row.model == model]


@pytest.fixture
def host(tmp_path):
    with ExitStack() as stack:
        yield Host(tmp_path, stack)


def is_waiting(run: Running) -> bool:
    return "waiting for key" in run.output


def holder_of(lock: Path) -> int | None:
    """The process that has the key or had it last; None while the file is being written."""
    try:
        return msgspec.json.decode(lock.read_bytes(), type=Holder).pid
    except msgspec.DecodeError:
        return None


@pytest.mark.slow
def test_two_runs_at_the_same_time_stay_within_the_limit_of_one(host):
    host.hold("first")
    first = host.start("first", 40, "-n0")
    wait_until(lambda: len(host.arrivals_s("first")) > 2)
    second = host.start("second", 40, "-n0")
    wait_until(lambda: is_waiting(second))
    host.release("first")
    for run in (first, second):
        code, said = run.wait()
        assert code == 0, said
    log = host.log()
    assert len(host.arrivals_s("first")) == len(host.arrivals_s("second")) == 40
    assert log.max_in_window(1.0) <= QPS + 1
    assert max(host.arrivals_s("first")) < min(host.arrivals_s("second"))
    place = host.folder / "first" / ".ultrapar"
    who = f"the run with process id {first.process.pid} (results in {place}"
    assert f"ultrapar: waiting for key p-second/k-second, which is in use by {who}" in said
    assert "ultrapar: waited " in said
    assert "ultrapar: waited" not in first.output
    assert all(CANARY.encode() not in path.read_bytes() for path in host.locks.iterdir())


@pytest.mark.slow
def test_run_after_a_killed_one_starts_without_doubling_the_rate(host):
    host.hold("first")
    first = host.start("first", 300, "-n0")
    wait_until(lambda: len(host.arrivals_s("first")) > 12)
    second = host.start("second", 30, "-n0")
    wait_until(lambda: is_waiting(second))
    (lock,) = host.locks.iterdir()
    assert holder_of(lock) == first.process.pid
    first.process.send_signal(signal.SIGKILL)
    wait_until(lambda: holder_of(lock) == second.process.pid)
    assert second.wait()[0] == 0, second.output
    assert len(host.arrivals_s("second")) == 30
    assert host.log().max_in_window(1.0) <= QPS + 1


@pytest.fixture
def held(project) -> KeyLocks:
    """The project's key, locked by this process."""
    name = key_identity(project.server.base_url, f"{CANARY}-0")
    holder = Holder(4321, "/runs/other", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    locks = take_all(project.locks, [name], holder)
    assert isinstance(locks, KeyLocks)
    yield locks
    locks.give_back({})


def test_key_in_use_is_refused_by_name_and_holder(project, held):
    project.suite(cases(["say a"]))
    result = project.run("-n0", "--ultrapar-key-lock=fail")
    project.refusal(result)
    result.stderr.fnmatch_lines(
        [
            "ERROR: key p/key0 is in use by the run with process id 4321 (results in /runs/other, "
            "since 2026-01-02 03:04:05 UTC); *--ultrapar-key-lock*"
        ]
    )


def test_error_of_a_suite_is_reported_before_any_wait_for_a_key(project, held):
    project.suite(
        '\n@pytest.mark.ultrapar(model="m")\n@pytest.mark.parametrize("prompt", ["say a"])\n'
        "def test_it(answer): pass\n"
    )
    said = project.refusal(project.run("-n0", "--ultrapar-key-lock=fail"))
    assert "mark ultrapar(...) got model" in said
    assert "in use" not in said


def test_error_of_collection_is_shown_before_any_wait_for_a_key(project, held, workers):
    project.suite(cases(["say a"]))
    project.pytester.path.joinpath("test_broken.py").write_text("import no_such_module\n")
    result = project.run(workers, "--ultrapar-key-lock=fail")
    assert result.ret == 2
    assert "No module named 'no_such_module'" in result.stdout.str()
    assert "Interrupted: 1 error during collection" in result.stdout.str()
    assert "in use" not in result.stderr.str()
    assert not list(project.pytester.path.glob(".ultrapar/2*"))


@pytest.mark.parametrize("option", ["--ultrapar-plan", "--collect-only", "--setup-plan"])
def test_session_that_sends_nothing_locks_no_key(project, held, option):
    project.suite(cases(["say a"]))
    assert project.run("-n0", option).ret == 0
