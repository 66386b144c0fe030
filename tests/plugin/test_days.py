"""Daily limits over several runs on a machine, judged by the provider's log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.testing import read_server_log
from tests.plugin.conftest import cases
from tests.running import Running, wait_until
from tests.simulated_pool import asking, pool_text, serving

# Every process of the machine reads its clocks here, including a broker's and a provider's.
SHIFTED = """
import time
from pathlib import Path

def moved_on(real):
    shift = Path(__file__).with_name("shift")
    return lambda *clock: real(*clock) + float(shift.read_text())

time.time, time.clock_gettime = moved_on(time.time), moved_on(time.clock_gettime)
"""
DAY_S = 86_400


class Days:
    """A machine whose day a test advances, with a provider that counts by the same clock."""

    def __init__(self, project, monkeypatch) -> None:
        self.project = project
        self.clocks = project.pytester.mkdir("clocks")
        self.clocks.joinpath("sitecustomize.py").write_text(SHIFTED)
        self.move_to(0)
        monkeypatch.setenv("PYTHONPATH", str(self.clocks))
        # A provider imports the modules that its parent would import.
        monkeypatch.syspath_prepend(self.clocks)
        self.log_path = project.pytester.path / "server.jsonl"

    def move_to(self, seconds: float) -> None:
        # In one step: other processes read it all the time.
        self.clocks.joinpath("new").write_text(str(seconds))
        self.clocks.joinpath("new").replace(self.clocks / "shift")

    def write_pool(self, limits: str) -> str:
        text = pool_text(f"workers = 8, {limits}", 0.02)
        self.project.pytester.path.joinpath("pool.toml").write_text(text)
        return text

    def provider(self, limits: str) -> SimulatorProcess:
        return serving(self.write_pool(limits), self.log_path)

    def served(self) -> int:
        """The number of requests that the provider received; it refused none."""
        log = read_server_log(self.log_path)
        assert {one.status for one in log.requests} <= {200, None}
        return len(log.requests)


@pytest.fixture
def days(project, monkeypatch) -> Days:
    return Days(project, monkeypatch)


@pytest.mark.slow
def test_three_runs_share_a_day_and_the_next_one_finishes(days):
    limits = 'rpd = 200, day = "Asia/Tokyo"'
    # Noon of a day in Tokyo, wherever and whenever the test runs.
    noon_s = (3 * 3600 - time.time()) % DAY_S
    days.move_to(noon_s)
    project = days.project
    with days.provider(limits) as server:
        project.suite(cases(60))
        first = project.run_apart("-n0", asking(server))
        first.stdout.fnmatch_lines(["*requests per day for sim/key0: 200 of 200 left*"])
        assert first.ret == 0
        assert days.served() == 60

        project.suite(cases(61))
        # When the run is killed, two seconds of requests remain, even on a busy machine.
        days.write_pool(f"{limits}, qps = 20")
        with Running(project.pytester.path, asking(server)):
            wait_until(lambda: days.served() >= 80)
        time.sleep(0.2)
        n_before = days.served()
        assert 80 <= n_before < 121, "the run was killed while it sent requests"

        days.write_pool(limits)
        project.suite(cases(200))
        third = project.run_apart("-n2", asking(server))
        assert third.ret == 1
        third.stdout.fnmatch_lines(["*m needs at least 200 requests, but daily limits leave only*"])
        outcomes = Counter(project.outcomes().values())
        assert {row["kind"] for row in project.rows() if row["outcome"] == "infra"} == {
            "daily_quota"
        }
        assert 0.9 * 200 <= days.served() <= 200
        assert outcomes["solved"] == days.served() - n_before

        days.move_to(noon_s + DAY_S + 600)
        assert project.run_apart("-n0", asking(server), "--ultrapar-resume", "latest").ret == 0
        assert set(project.outcomes().values()) == {"solved"}
        assert days.served() == n_before + 200


@pytest.mark.slow
def test_check_counts_its_own_requests(days):
    with days.provider("rpd = 5") as server:
        days.project.suite(cases(5))
        assert days.project.run("-n0", asking(server), "--ultrapar-check").ret == 1
        assert days.served() == 5
        outcomes = Counter(days.project.outcomes().values())
        assert outcomes == {"solved": 4, "infra": 1}
        command = [sys.executable, "-m", "pytest_ultrapar.cli", "check", "--pool", "pool.toml"]
        checked = subprocess.run(
            [*command, "--simulator", f"http://127.0.0.1:{server.port}"],
            cwd=days.project.pytester.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "requests per day for sim/key0: 0 of 5 left" in checked.stdout
        (said,) = [one for one in checked.stdout.splitlines() if one.startswith("limited  sim")]
        used_up = "the daily limit of sim/key0 (rpd = 5) is used up; more quota becomes free at 20"
        assert f"  {used_up}" in said
        assert "failed" not in checked.stdout
        assert checked.returncode == 1, "no lane is ok"
        assert days.served() == 5


def test_plan_shows_the_rest_of_the_day_and_the_missing_requests(project):
    project.write_pool(key=", rpd = 3")
    project.suite(cases(list("abcd")))
    result = project.run("-n0", "--ultrapar-plan")
    result.stdout.fnmatch_lines(["*requests per day for p/key0: 3 of 3 left*"])
    result.stdout.fnmatch_lines(["p/key0 * 4 in flight *", "p/key0 * 3 per day * 2 days"])
    result.stdout.fnmatch_lines(
        ["WARNING: m needs about 4 requests, but daily limits leave only 3*"]
    )
    assert project.server.prompts == []
    assert not Path(os.environ["ULTRAPAR_STATE_DIR"]).exists(), "a plan writes no files"


def test_plan_that_fits_in_a_day_has_no_warning_and_names_suites_in_words(project):
    project.write_pool(key=", rpd = 4")
    project.suite(cases(list("abcd")))
    result = project.run("-n0", "--ultrapar-plan")
    result.stdout.fnmatch_lines(["p/key0 * 4 in flight *", "p/key0 * 4 per day * within a day"])
    result.stdout.fnmatch_lines(["*turns per episode are assumed to be 1 (suite *)"])
    result.stdout.no_fnmatch_line("WARNING*")


@pytest.mark.slow
def test_run_warns_before_its_first_request_that_it_needs_more(project):
    project.write_pool(key=", rpd = 5")
    project.suite(cases(list("abc")))
    project.run("-n0").stdout.no_fnmatch_line("*daily limits leave*")
    result = project.run("-n0")
    result.stdout.fnmatch_lines(
        ["*WARNING: m needs at least 3 requests, but daily limits leave only 2 now*"]
    )
    assert sorted(project.outcomes().values()) == ["infra", "solved", "solved"]


@pytest.mark.slow
def test_run_warns_that_no_requests_are_left(project):
    project.write_pool(key=", rpd = 3")
    project.suite(cases(list("abcd")))
    project.run("-n0")
    first = project.directory.resolve().name
    result = project.run("-n0")
    result.stdout.fnmatch_lines(
        [
            "*WARNING: m needs at least 4 requests, but daily limits leave only 0 now: *",
            "4 cases ended for lack of quota: *--ultrapar-resume *",
        ]
    )
    result = project.run("-n0", "--ultrapar-resume", first)
    result.stdout.fnmatch_lines(["*WARNING: m needs *, but * leave only 0 now: *"])
    plan = project.run("-n0", "--ultrapar-plan")
    plan.stdout.fnmatch_lines(["WARNING: m needs *, but * leave only 0 now: *"])


@pytest.mark.slow
def test_new_state_directory_is_named(project, tmp_path, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", str(tmp_path / "state"))
    project.write_pool(key=", rpd = 9")
    project.suite(cases(list("ab")))
    said = (
        f"*some daily limits have no saved count in {tmp_path / 'state'} yet, so they count from 0*"
    )
    project.run("-n0", "-q").stdout.fnmatch_lines([f"*WARNING: {said[1:]}"])
    project.run("-n0").stdout.no_fnmatch_line(said)
    (counted,) = (tmp_path / "state").glob("*.day")
    counted.unlink()
    project.run("-n0", "-q").stdout.fnmatch_lines([said])
