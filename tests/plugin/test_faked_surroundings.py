"""Tests that fake parts of their process during episodes: the run's times and files stay real."""

from __future__ import annotations

import time

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import said_by

pytestmark = pytest.mark.slow

N = 12
SUITE = """
import os, time
real_sleep = time.sleep

@prefetch
async def thrice(llm, n) -> list:
    turns = [f"slow 0.1 {n}-{turn}" for turn in range(3)]
    return [(await llm.chat([{"role": "user", "content": one}])).text for one in turns]
"""
TEST = """
@pytest.mark.parametrize("n", range(12))
def test_it(thrice, n, grade, FIXTURES):
    BODY
"""
BODIES = {
    # spulec/freezegun#437, spulec/freezegun#384: tasks hang, or are ages late
    "freezegun": """import freezegun
    with freezegun.freeze_time("2001-01-01"):
        real_sleep(0.1); assert time.time() < 1e9; grade(len(thrice) == 3)""",
    "freezegun, later": """import freezegun
    with freezegun.freeze_time("2101-01-01", tick=True):
        real_sleep(0.1); assert time.time() > 4e9; grade(len(thrice) == 3)""",
    # adamchainz/time-machine#387
    "time-machine": """import time_machine
    with time_machine.travel("2001-01-01", tick=False):
        real_sleep(0.1); assert time.time() < 1e9; grade(len(thrice) == 3)""",
    "time-machine, later": """import time_machine
    with time_machine.travel("2101-01-01", tick=True):
        real_sleep(0.1); assert time.time() > 4e9; grade(len(thrice) == 3)""",
    "a patched clock": """
    for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "clock_gettime"):
        monkeypatch.setattr(time, name, lambda *_: 7)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    real_sleep(0.1); grade(len(thrice) == 3)""",
    "a patched disk": """
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("write", "fdatasync", "fsync", "pwrite", "pread", "open", "replace", "stat"):
        monkeypatch.setattr(os, name, full)
    real_sleep(0.1); grade(len(thrice) == 3); monkeypatch.undo()""",
    # pytest-dev/pyfakefs#813, pytest-dev/pyfakefs#1102: threads next to a test
    "pyfakefs": """
    fs.create_file("/there/is", contents="this"); real_sleep(0.1)
    assert open("/there/is").read() == "this" and not os.path.exists(__file__)
    grade(len(thrice) == 3)""",
    "pyfakefs by hand": """
    from pyfakefs.fake_filesystem_unittest import Patcher
    with Patcher() as patcher:
        real_sleep(0.1); assert not os.path.exists(__file__); grade(len(thrice) == 3)""",
}
ALL_THE_TIME = {
    "freezegun": """
import freezegun, pytest

@pytest.fixture(scope="session", autouse=True)
def frozen():
    with freezegun.freeze_time("2001-01-01"):
        yield
""",
    "freezegun, from the start": """
import freezegun

freezegun.freeze_time("2001-01-01").start()
""",
    # From here to the end; it is never stopped.
    "time-machine": """
import time_machine

def pytest_collection_finish():
    time_machine.travel("2101-01-01", tick=False).start()
""",
}


def assert_real(project, began_s: float) -> None:
    """All cases are solved, at current times."""
    rows, attempts = project.rows(), project.rows("attempts")
    assert [row["outcome"] for row in rows] == ["solved"] * N
    assert len(attempts) == 3 * N
    manifest = read_manifest(project.directory)
    times = [row[name] for row in rows for name in ("started_at", "ended_at")]
    for one in (*times, manifest.started_at, manifest.ended_at):
        assert began_s - 1 <= one.timestamp() <= time.time() + 1
    for row in rows:
        assert row["started_at"] <= row["ended_at"]
        assert 0.25 <= row["duration_s"] < 20


def run_it(project, workers: str, fixtures: str, body: str) -> None:
    began_s = time.time()
    project.suite(SUITE + TEST.replace("FIXTURES", fixtures).replace("BODY", body))
    plugins = ["-p", "pyfakefs.pytest_plugin"] if "fs" in fixtures else []
    said_by(project.run_apart(workers, *plugins), 0)
    assert_real(project, began_s)
    resumed = project.run_apart("-n0", *plugins, "--ultrapar-resume=latest")
    assert f"{N} finished episodes resumed\n" in said_by(resumed, 0)
    assert len(project.server.prompts) == 3 * N


@pytest.mark.parametrize("kind", BODIES)
def test_fakes_of_a_test_do_not_affect_the_run(project, kind):
    fixtures = "fs" if kind == "pyfakefs" else "monkeypatch"
    run_it(project, "-n0", fixtures, BODIES[kind])


@pytest.mark.parametrize("kind", ["freezegun", "a patched disk", "pyfakefs"])
def test_fakes_of_a_test_do_not_affect_a_worker(project, kind):
    fixtures = "fs" if kind == "pyfakefs" else "monkeypatch"
    run_it(project, "-n2", fixtures, BODIES[kind])


@pytest.mark.parametrize("kind", ALL_THE_TIME)
def test_clock_that_is_always_faked_does_not_affect_the_run(project, kind):
    project.pytester.path.joinpath("conftest.py").write_text(ALL_THE_TIME[kind])
    run_it(project, "-n0", "monkeypatch", "grade(len(thrice) == 3)")


def test_daily_limits_and_budgets_use_real_clocks_and_files(project):
    project.write_pool(
        key=", rpd = 1000",
        model="price_per_mtok_in = 1.0\nprice_per_mtok_out = 1.0\nmax_tokens = 50",
    )
    project.suite(SUITE + TEST.replace("FIXTURES", "fs").replace("BODY", BODIES["pyfakefs"]))
    done = project.run_apart("-n0", "-p", "pyfakefs.pytest_plugin", "--ultrapar-budget=100")
    said_by(done, 0)
    assert [row["outcome"] for row in project.rows()] == ["solved"] * N
