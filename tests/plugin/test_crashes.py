"""Processes that die: real ones, by exit and by SIGKILL."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.records import EpisodeStarted
from pytest_ultrapar.testing import read_server_log
from tests.family import workers_of
from tests.journals import scan_journal
from tests.running import Running, wait_until
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

POOL = pool_text("workers = 5", 0.1, keys=3, models=["echo"])
TALK = """
import os, pytest
from pytest_ultrapar import prefetch

@prefetch
async def talk(llm, number) -> int:
    messages = [{"role": "user", "content": str(number)}]
    for turn in range(TURNS):
        reply = await llm.chat(messages)
        POISON
        messages.append({"role": "assistant", "content": reply.text})
        messages.append({"role": "user", "content": str(turn)})
    return number

@pytest.mark.parametrize("number", range(N))
def test_talk(talk, number):
    BODY
    assert talk == number
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("pool.toml").write_text(POOL)
    return tmp_path


def _write(
    folder: Path, *, n: int, turns: int = 1, poison: str = "pass", body: str = "pass"
) -> None:
    text = TALK.replace("TURNS", str(turns)).replace("POISON", poison).replace("BODY", body)
    folder.joinpath("test_talk.py").write_text(text.replace("range(N)", f"range({n})"))


def _run_dir(folder: Path) -> Path:
    return (folder / ".ultrapar" / "latest").resolve()


def _outcomes(folder: Path) -> Counter[str]:
    rows = pq.read_table(_run_dir(folder) / "results.parquet").to_pylist()
    assert len({row["case_id"] for row in rows}) == len(rows)
    return Counter(row["outcome"] for row in rows)


def _lost(folder: Path) -> list[tuple[int, str]]:
    rows = pq.read_table(_run_dir(folder) / "results.parquet").to_pylist()
    return sorted((row["param.number"], row["kind"]) for row in rows if row["outcome"] == "infra")


def _wait_for_requests(folder: Path, n: int) -> None:
    """Wait until the server has seen n requests, by its own log."""
    log = folder / ".ultrapar" / "latest" / "simulator.jsonl"
    wait_until(lambda: log.exists() and log.read_bytes().count(b'"arrival"') >= n)


def test_killed_worker_costs_no_case_and_no_seat(folder):
    _write(folder, n=120, turns=4)
    running = Running(folder, "-n3")
    _wait_for_requests(folder, 60)
    victim = workers_of(running.process.pid)[0]
    killed_s = time.monotonic()
    victim.send_signal(signal.SIGKILL)
    code, output = running.wait()
    assert code == 0, output
    report = (_run_dir(folder) / "report.md").read_text(encoding="utf-8")
    assert "missing from the tables, but possibly billed: " in report
    assert _outcomes(folder) == {"solved": 120}
    log = read_server_log(_run_dir(folder) / "simulator.jsonl")
    for key in ("key0", "key1", "key2"):
        assert log.max_in_flight(key=key) <= 5
        # Every key has its five seats in use again.
        later = [r for r in log.requests if r.key == key and r.t_arrival_s > killed_s]
        assert (
            max(sum(one.t_arrival_s <= r.t_arrival_s < one.t_end_s for one in later) for r in later)
            == 5
        )
    assert log.count(429) == 0


def test_only_poisonous_cases_are_lost(folder):
    _write(folder, n=40, poison="if number in (3, 30): os._exit(3)")
    code, output = Running(folder, "-n2", "--ultrapar-coverage", "0.9").wait()
    assert code == 0, output
    assert _outcomes(folder) == {"solved": 38, "infra": 2}
    assert _lost(folder) == [(3, "worker_lost"), (30, "worker_lost")]
    assert "38 solved, 2 infra" in output


ALL_DIE_AT_ONCE = """
import os, pathlib, signal

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        worker = config.workerinput["workerid"]
        pathlib.Path(f"{worker}.pid").write_text(str(os.getpid()))

def pytest_testnodedown(node):
    # Before xdist learns of the first death, the other worker is dead too, and xdist's receiver
    # thread is slow to notice. By chance this takes microseconds, so the test forces it.
    type(node).shutting_down = property(lambda self: self._shutdown_sent)
    other = {"gw0": "gw1", "gw1": "gw0"}.get(node.gateway.id)
    path = pathlib.Path(f"{other}.pid")
    pathlib.Path(f"{node.gateway.id}.pid").unlink()
    if path.exists():
        os.kill(int(path.read_text()), signal.SIGKILL)
        os.waitid(os.P_PID, int(path.read_text()), os.WEXITED | os.WNOWAIT)
"""


def test_second_worker_that_dies_before_the_first_is_known_dead_costs_nothing(folder):
    folder.joinpath("conftest.py").write_text(ALL_DIE_AT_ONCE)
    # So few cases that the second worker gets the first one's cases immediately.
    _write(folder, n=24, turns=4)
    running = Running(folder, "-n2")
    _wait_for_requests(folder, 16)
    workers_of(running.process.pid)[0].send_signal(signal.SIGKILL)
    code, output = running.wait()
    assert code == 0, output
    assert output.count("node down") == 2
    assert _outcomes(folder) == {"solved": 24}


def test_only_three_slow_poisonous_cases_are_lost(folder):
    """Each lives long enough for xdist to learn that it began, while other cases wait."""
    poison = "import time; time.sleep(0.3); os._exit(3)"
    _write(folder, n=40, body=f"if number < 3: {poison}")
    # They kill eight or nine workers; xdist gives up after eight.
    more = ("--max-worker-restart=12", "--ultrapar-coverage", "0.9")
    code, output = Running(folder, "-n2", *more).wait()
    assert code == 0, output
    assert _outcomes(folder) == {"solved": 37, "infra": 3}
    assert _lost(folder) == [(number, "worker_lost") for number in range(3)]


BROKER_DIES = """
import os, signal, threading

def pytest_runtest_logfinish(nodeid):
    coordinator = CONFIG[0].pluginmanager.getplugin("ultrapar-coordinator")
    if coordinator is not None and not DONE:
        DONE.append(nodeid)
        os.kill(coordinator.run.services.broker.pid, signal.SIGKILL)

CONFIG, DONE = [], []

def pytest_configure(config):
    CONFIG.append(config)
"""


def test_run_whose_broker_dies_ends_with_a_row_for_every_case(folder):
    folder.joinpath("conftest.py").write_text(BROKER_DIES)
    _write(folder, n=120, turns=2)
    code, output = Running(folder, "-n2").wait()
    assert code == 1, output
    outcomes = _outcomes(folder)
    assert set(outcomes) == {"solved", "infra"}
    assert sum(outcomes.values()) == 120
    # Lines are wrapped at any word.
    assert "the broker is gone" in " ".join(output.split())


BROKER_DIES_BEFORE_THE_FIRST_CASE = """
import os, signal

from pytest_ultrapar.coordinator.services import Services

start = Services.start_broker

def start_and_kill(self, *arguments, **options):
    broker = start(self, *arguments, **options)
    os.kill(broker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
    return broker

Services.start_broker = start_and_kill
"""


def test_run_whose_broker_dies_before_the_first_case_ends_with_one_sentence(folder):
    folder.joinpath("conftest.py").write_text(BROKER_DIES_BEFORE_THE_FIRST_CASE)
    _write(folder, n=4)
    code, output = Running(folder, "-n2").wait()
    assert code == 4, output
    assert "ERROR: no broker is listening at " in output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output


DIES_AFTER_ITS_CALL = """
import os, pathlib, pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    # In a worker, after xdist has sent the report of the call and before the teardown's.
    if "PYTEST_XDIST_WORKER" in os.environ and report.when == "call" and "-17-" in report.nodeid:
        done = pathlib.Path("died")
        if not done.exists():
            done.touch()
            os._exit(3)
"""


def test_case_that_runs_again_is_counted_once(folder):
    folder.joinpath("conftest.py").write_text(DIES_AFTER_ITS_CALL)
    _write(folder, n=40)
    code, output = Running(folder, "-n2").wait()
    assert folder.joinpath("died").exists()
    assert code == 0, output
    assert _outcomes(folder) == {"solved": 40}
    assert "= 40 solved in" in output


def test_crash_without_restart_fails_and_reports_how_many_cases_never_ran(folder):
    _write(folder, n=60, poison="if number == 17: os._exit(3)")
    code, output = Running(folder, "-n2", "--max-worker-restart", "0").wait()
    n_never = 60 - sum(_outcomes(folder).values())
    assert code == 1
    assert n_never > 0
    assert f"{n_never} of 60 planned cases never ran" in output


def test_killed_controller_leaves_nothing_and_resume_completes(folder):
    _write(folder, n=60, turns=4)
    running = Running(folder, "-n2")
    _wait_for_requests(folder, 100)
    running.note_family()
    running.process.kill()
    assert not running.left_behind()
    first = read_server_log(_run_dir(folder) / "simulator.jsonl")
    finished = _finished_episodes(_run_dir(folder))
    assert finished
    journal = scan_journal(_run_dir(folder) / "journal")
    n_open = sum(isinstance(one, EpisodeStarted) for _, one in journal) - len(finished)
    code, output = Running(folder, "-n2", "--ultrapar-resume=latest").wait()
    assert code == 0, output
    assert _outcomes(folder) == {"solved": 60}
    assert len(read_server_log(_run_dir(folder) / "simulator.jsonl").requests) == len(
        first.requests
    )
    second = read_server_log(_run_dir(folder) / "simulator-2.jsonl")
    # Twice the requests in flight on 15 seats, and the last answer of each conversation.
    n_twice = len(first.requests) + len(second.requests) - 4 * 60
    assert 0 <= n_twice <= 15 + n_open
    # There is nothing left to do, and the earlier measurements are kept.
    before = (_run_dir(folder) / "benchmark.json").read_bytes()
    code, output = Running(folder, "-n2", "--ultrapar-resume=latest").wait()
    assert code == 0, output
    assert (_run_dir(folder) / "benchmark.json").read_bytes() == before
    assert (_run_dir(folder) / "benchmark.json").is_file()


def _finished_episodes(run_dir: Path) -> set[str]:
    from pytest_ultrapar.store.journal_history import read_history
    from tests.journals import find_finished

    return set(find_finished(read_history(run_dir / "journal")))


HOSTILE_SUITE = """
import ast, asyncio, os, sys, time
import pytest
from pytest_ultrapar import prefetch

N, HOSTILE = 240, {hostile!r}
EVERY = N // len(HOSTILE)

class Own(BaseException):
    pass

async def raises(kind):
    raise kind

@prefetch
async def talk(llm, number) -> str:
    loop = asyncio.get_running_loop()
    reply = await llm.chat([{{"role": "user", "content": str(number)}}])
    if number % EVERY == 7 and number // EVERY < len(HOSTILE):
        code = compile(HOSTILE[number // EVERY], "hostile", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(code, globals() | locals())
        if ran is not None:
            await ran
        return "hostile" + "x" * 2**20
    return reply.text

@pytest.mark.parametrize("number", range(N))
def test_talk(talk, number):
    assert talk == f"echo: {{number}}"
"""
HOSTILE = {
    "raise GeneratorExit": ("error", "GeneratorExit"),
    "raise Own": ("error", "Own"),
    "raise KeyboardInterrupt": ("error", "KeyboardInterrupt"),
    "raise MemoryError": ("error", "MemoryError"),
    "raise StopAsyncIteration": ("error", "StopAsyncIteration"),
    "raise asyncio.CancelledError": ("error", "CancelledError"),
    "raise BaseExceptionGroup('all', [Own(), GeneratorExit()])": ("error", "BaseExceptionGroup"),
    "pytest.exit('enough')": ("error", "AssertionError"),
    "sys.exit(3)": ("error", "SystemExit"),
    "await asyncio.create_task(raises(SystemExit))": ("error", "SystemExit"),
    "await asyncio.create_task(raises(KeyboardInterrupt))": ("error", "KeyboardInterrupt"),
    "loop.stop()": ("unsolved", None),
    "loop.close()": ("error", "RuntimeError"),
    "loop.run_until_complete(asyncio.sleep(0))": ("error", "RuntimeError"),
    "asyncio.current_task().cancel(); await asyncio.sleep(0)": ("error", "CancelledError"),
    "for task in asyncio.all_tasks(): task.cancel()": ("error", "RuntimeError"),
    "f = lambda: f(); f()": ("error", "RecursionError"),
    "os.chdir('/')": ("unsolved", None),
    "print('y' * 2**20)": ("unsolved", None),
    "await asyncio.sleep(1e6)": ("infra", "timeout"),
    "while True:\n try: await asyncio.sleep(1)\n except BaseException: pass": ("infra", "timeout"),
    "time.sleep(1e6)": ("infra", "worker_lost"),
    "os._exit(3)": ("infra", "worker_lost"),
    "os.closerange(3, 1000)": ("infra", "worker_lost"),
}


def test_24_hostile_cases_of_240_do_not_affect_the_others(folder):
    folder.joinpath("conftest.py").write_text(
        "from pytest_ultrapar.coordinator import worker_watch\nworker_watch.GRACE_S = 5.0\n"
    )
    suite = HOSTILE_SUITE.format(hostile=list(HOSTILE))
    folder.joinpath("test_talk.py").write_text(suite)
    folder.joinpath("pool.toml").write_text(POOL.replace("workers = 5", "workers = 20"))
    running = Running(folder, "-n4", "--ultrapar-episode-timeout", "10", "--ultrapar-coverage=0.9")
    code, output = running.wait(600)
    assert code == 1, output
    rows = pq.read_table(_run_dir(folder) / "results.parquet").to_pylist()
    assert len(rows) == len({row["case_id"] for row in rows}) == 240
    every = 240 // len(HOSTILE)
    places = {every * n + 7: hostile for n, hostile in enumerate(HOSTILE)}
    assert all(row["error"] for row in rows if row["param.number"] in places)
    found = {row["param.number"]: (row["outcome"], row["kind"]) for row in rows}
    assert {hostile: found.pop(number) for number, hostile in places.items()} == HOSTILE
    assert set(found.values()) == {("solved", None)}
