"""Limits per day over several runs of a host, judged by the log of the provider."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.testing import read_server_log
from tests.light import PYTEST

POOL = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{{ name = "key0" }}]
per_key = {{ workers = 8, {limits} }}
latency = {{ kind = "fixed", median_s = 0.02 }}
[[provider.model]]
name = "echo"
"""
SUITE = """
@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range({n})])
def test_it(answer, prompt, grade): grade("solved")
"""
# Every process of the host reads its clocks here, that of a broker and a provider, too.
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
    """A host whose days a test moves on, with a provider that counts by them."""

    def __init__(self, project, monkeypatch) -> None:
        self.project = project
        self.clocks = project.pytester.mkdir("clocks")
        self.clocks.joinpath("sitecustomize.py").write_text(SHIFTED)
        self.move_to(0)
        monkeypatch.setenv("PYTHONPATH", str(self.clocks))
        # A provider imports what its parent would.
        monkeypatch.syspath_prepend(self.clocks)
        self.log_path = project.pytester.path / "server.jsonl"

    def move_to(self, seconds: float) -> None:
        # At once: other processes read it all the time.
        self.clocks.joinpath("new").write_text(str(seconds))
        self.clocks.joinpath("new").replace(self.clocks / "shift")

    def write_pool(self, limits: str) -> Path:
        path = self.project.pytester.path / "pool.toml"
        path.write_text(POOL.format(limits=limits))
        return path

    def provider(self, limits: str) -> SimulatorProcess:
        pool = load_pool(self.write_pool(limits), environ={}, overrides=Overrides())
        return SimulatorProcess.start(pool, log_path=self.log_path)

    def served(self) -> int:
        """Requests that came to the provider, none of which it refused."""
        log = read_server_log(self.log_path)
        assert {one.status for one in log.requests} <= {200, None}
        return len(log.requests)


@pytest.fixture
def days(project, monkeypatch) -> Days:
    return Days(project, monkeypatch)


def url_of(server: SimulatorProcess) -> tuple[str, str]:
    return "--ultrapar-simulator", f"http://127.0.0.1:{server.port}"


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["rpd = 200", 'rpd = 200, day = "Asia/Tokyo"'])
def test_three_runs_share_a_day_and_the_next_one_finishes(days, limits):
    # Noon of a day in Tokyo, wherever and whenever the test runs.
    noon_s = (3 * 3600 - time.time()) % DAY_S
    days.move_to(noon_s)
    project = days.project
    with days.provider(limits) as server:
        project.suite(SUITE.format(n=60))
        first = project.run_apart("-n2", *url_of(server))
        first.stdout.fnmatch_lines(["*requests per day of sim/key0: 200 of 200 left*"])
        assert first.ret == 0
        assert days.served() == 60

        project.suite(SUITE.format(n=61))
        # Two seconds to go when it is killed, whoever else wants this machine's processors.
        days.write_pool(f"{limits}, qps = 20")
        killed = subprocess.Popen(
            [*PYTEST, "-q", "--ultrapar-pool", "pool.toml", *url_of(server)],
            cwd=project.pytester.path,
            stdout=subprocess.DEVNULL,
        )
        until_s = time.monotonic() + 60
        while days.served() < 80 and time.monotonic() < until_s:
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        time.sleep(0.2)
        n_before = days.served()
        assert 80 <= n_before < 121, "it was killed while it sent"

        days.write_pool(limits)
        project.suite(SUITE.format(n=200))
        third = project.run_apart("-n2", *url_of(server))
        assert third.ret == 1
        third.stdout.fnmatch_lines(
            ["*echo needs at least 200 requests, but limits per day leave only*"]
        )
        outcomes = Counter(project.outcomes().values())
        assert {row["kind"] for row in project.rows() if row["outcome"] == "infra"} == {
            "daily_quota"
        }
        assert 0.9 * 200 <= days.served() <= 200
        assert outcomes["solved"] == days.served() - n_before

        days.move_to(noon_s + DAY_S + 600)
        resumed = project.run_apart("-n2", *url_of(server), "--ultrapar-resume", "latest")
        assert resumed.ret == 0
        assert set(project.outcomes().values()) == {"solved"}
        assert days.served() == n_before + 200


@pytest.mark.slow
def test_tokens_per_day_are_what_the_provider_counted(project, workers):
    project.write_pool(key=", tpd = 4000")
    project.suite(
        '@pytest.mark.parametrize("prompt", [f"use 10 50 {n}" for n in range(90)])\n'
        "def test_it(answer, prompt): pass"
    )
    assert project.run(workers).ret == 1
    used = sum(tokens for _, tokens in project.server.used)
    assert 0.9 * 4000 <= used <= 4000
    first = len(project.server.used)
    assert project.run(workers, "--ultrapar-resume", "latest").ret == 1
    assert sum(tokens for _, tokens in project.server.used) <= 4000
    assert first >= 30


@pytest.mark.slow
def test_check_counts_its_own_requests(days):
    with days.provider("rpd = 5") as server:
        days.project.suite(SUITE.format(n=5))
        assert days.project.run("-n0", *url_of(server), "--ultrapar-check").ret == 1
        assert days.served() == 5
        outcomes = Counter(days.project.outcomes().values())
        assert outcomes == {"solved": 4, "infra": 1}
        command = [sys.executable, "-m", "pytest_ultrapar.cli", "check", "--pool", "pool.toml"]
        checked = subprocess.run(
            [*command, "--simulator", url_of(server)[1]],
            cwd=days.project.pytester.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "requests per day of sim/key0: 0 of 5 left" in checked.stdout
        (said,) = [one for one in checked.stdout.splitlines() if one.startswith("limited  sim")]
        assert "  daily limit of sim/key0 (rpd = 5) used up; next free 20" in said
        assert "failed" not in checked.stdout
        assert checked.returncode == 1, "no lane is ok"
        assert days.served() == 5


@pytest.mark.slow
def test_key_without_quota_left_does_not_keep_a_checked_run_from_its_other_key(project):
    project.write_pool(keys=2, key=", rpd = 2")
    project.suite('@pytest.mark.parametrize("prompt", list("ab"))\ndef test_it(answer): pass')
    pool = project.pytester.path / "pool.toml"
    both = pool.read_text()
    pool.write_text(both.replace(', { name = "key1", env = "TEST_KEY_1" }', ""))
    assert project.run("-n0").ret == 0
    pool.write_text(both)
    result = project.run("-n0", "--ultrapar-check")
    result.stdout.fnmatch_lines(
        [
            "ultrapar: check: 1 of 2 lanes ok: 1 out of the day's quota",
            "ultrapar: check: limited: p/m/key0: daily limit of p/key0 (rpd = 2) used up; next *",
        ]
    )
    assert sorted(project.outcomes().values()) == ["infra", "solved"]


@pytest.mark.slow
def test_run_on_its_own_simulator_begins_each_day_anew(project):
    path = project.pytester.path / "pool.toml"
    path.write_text(POOL.format(limits="rpd = 3"))
    project.suite(SUITE.format(n=3))
    for _ in range(2):
        result = project.run("-n0")
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            [
                "*requests per day of sim/key0: 3 of 3 left (simulated: counted for this run only)",
                "requests per day of sim/key0: 3 sent of 3 (simulated: counted for this run only)",
            ]
        )
    project.suite(SUITE.format(n=4))
    result = project.run("-n0")
    project.report.fnmatch_lines(
        [
            "*daily limit of sim/key0 (rpd = 3) used up; the simulated provider of the next session"
            " starts with a full day",
        ]
    )
    result.stdout.fnmatch_lines(["1 case ended without quota: go on with * --ultrapar-resume 20*"])
    assert project.run("-n0", "--ultrapar-resume", "latest").ret == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("day", "more_at"),
    [
        ('day = "America/Los_Angeles"', "resets 20??-??-?? 00:00 America/Los_Angeles"),
        ("", "next free 20??-??-?? ??:?? UTC"),
    ],
)
def test_end_of_a_run_says_what_the_day_has_left_for_the_next(project, workers, day, more_at):
    project.write_pool(key=", ".join([", rpd = 3", *([day] if day else [])]))
    project.suite('@pytest.mark.parametrize("prompt", list("ab"))\ndef test_it(answer): pass')
    first = project.run(workers)
    first.stdout.fnmatch_lines(
        [f"requests per day of p/key0: 1 of 3 left (2 sent by this run); {more_at}"]
    )
    # The audit is of this run alone.
    first.stdout.no_fnmatch_line("*in a day*")
    second = project.run(workers)
    second.stdout.fnmatch_lines([f"ultrapar: requests per day of p/key0: 1 of 3 left; {more_at}"])
    project.report.fnmatch_lines(["infra: *: daily limit of p/key0 (rpd = 3) used up; " + more_at])
    second.stdout.fnmatch_lines(
        [
            f"requests per day of p/key0: 0 of 3 left (1 sent by this run); {more_at}",
            "1 case ended without quota, * --ultrapar-episode-timeout (*--ultrapar-resume 20*",
        ]
    )


def test_plan_says_what_is_left_and_what_is_missing(project):
    project.write_pool(key=", rpd = 3")
    project.suite('@pytest.mark.parametrize("prompt", list("abcd"))\ndef test_it(answer): pass')
    result = project.run("-n0", "--ultrapar-plan")
    result.stdout.fnmatch_lines(["*requests per day of p/key0: 3 of 3 left*"])
    result.stdout.fnmatch_lines(["p/key0 * 4 in flight *", "p/key0 * 3 per day * 2 days"])
    result.stdout.fnmatch_lines(["WARNING: the lower bound * what counts per day*"])
    result.stdout.fnmatch_lines(
        ["WARNING: m needs about 4 requests, but limits per day leave only 3*"]
    )
    assert project.server.prompts == []
    assert not Path(os.environ["ULTRAPAR_STATE_DIR"]).exists(), "a plan leaves nothing"


def test_plan_of_a_day_that_suffices_warns_of_nothing_and_names_suites_in_words(project):
    project.write_pool(key=", rpd = 4")
    project.suite('@pytest.mark.parametrize("prompt", list("abcd"))\ndef test_it(answer): pass')
    result = project.run("-n0", "--ultrapar-plan")
    result.stdout.fnmatch_lines(["p/key0 * 4 in flight *", "p/key0 * 4 per day * within a day"])
    result.stdout.fnmatch_lines(["*turns of an episode are assumed to be 1 (suite *)"])
    result.stdout.no_fnmatch_line("*what counts per day*")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged"),
        (b"ultrapar day 2 00000000\n{}\n", "another version"),
    ],
)
def test_memory_that_cannot_be_trusted_stops_the_run_before_its_first_request(
    project, tmp_path, monkeypatch, content, said
):
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", str(tmp_path / "state"))
    project.write_pool(key=", rpd = 9")
    project.suite('@pytest.mark.parametrize("prompt", list("ab"))\ndef test_it(answer): pass')
    assert project.run("-n0").ret == 0
    n_sent = len(project.server.prompts)
    (memory,) = (tmp_path / "state").glob("*.day")
    memory.write_bytes(content)
    result = project.run("-n0")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*requests per day of p/key0*{said}*"])
    assert len(project.server.prompts) == n_sent


def test_place_that_cannot_be_written_stops_the_run_before_its_first_request(project, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", "/proc/no-such-state")
    project.write_pool(key=", rpd = 9")
    project.suite('@pytest.mark.parametrize("prompt", list("ab"))\ndef test_it(answer): pass')
    result = project.run("-n0")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*cannot write*ULTRAPAR_STATE_DIR*"])
    assert project.server.prompts == []


def test_run_says_before_its_first_request_that_it_needs_more(project):
    project.write_pool(key=", rpd = 7")
    project.suite(
        "@prefetch\n"
        "async def twice(llm, prompt) -> None:\n"
        "    for _ in range(2):\n"
        '        await llm.chat([{"role": "user", "content": prompt}])\n'
        '@pytest.mark.parametrize("prompt", list("ab"))\n'
        "def test_it(twice): pass"
    )
    project.run("-n0").stdout.no_fnmatch_line("*limits per day leave*")
    result = project.run("-n0")
    result.stdout.fnmatch_lines(
        ["*WARNING: m needs about 4 requests, but limits per day leave only 3 now*"]
    )
    assert sorted(project.outcomes().values()) == ["infra", "solved"]


@pytest.mark.slow
def test_run_without_anything_left_names_the_run_to_finish_instead(project):
    project.write_pool(key=", rpd = 3")
    project.suite('@pytest.mark.parametrize("prompt", list("abcd"))\ndef test_it(answer): pass')
    project.run("-n0").stdout.no_fnmatch_line("*nothing can be sent*")
    first = project.directory.resolve().name
    result = project.run("-n0")
    result.stdout.fnmatch_lines(
        [
            "*WARNING: nothing can be sent now: *, unless units come free within"
            " --ultrapar-episode-timeout (900 s)",
            f"*WARNING: run {first} is not finished: to go on with it*--ultrapar-resume {first}",
            f"4 cases ended without quota, *--ultrapar-resume {first}",
        ]
    )
    result.stdout.no_fnmatch_line("*WARNING: m needs*")
    project.run("-n0").stdout.no_fnmatch_line("*is not finished*")
    result = project.run("-n0", "--ultrapar-resume", first)
    result.stdout.fnmatch_lines(["*WARNING: nothing can be sent now: *"])
    result.stdout.no_fnmatch_line("*is not finished*")
    plan = project.run("-n0", "--ultrapar-plan")
    plan.stdout.fnmatch_lines(["WARNING: nothing can be sent now: *"])


@pytest.mark.slow
def test_new_place_is_named(project, tmp_path, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", str(tmp_path / "state"))
    project.write_pool(key=", rpd = 9")
    project.suite('@pytest.mark.parametrize("prompt", list("ab"))\ndef test_it(answer): pass')
    said = f"*no saved count in {tmp_path / 'state'}*"
    project.run("-n0", "-q").stdout.fnmatch_lines([f"*WARNING: {said[1:]}"])
    project.run("-n0").stdout.no_fnmatch_line(said)
    (counted,) = (tmp_path / "state").glob("*.day")
    counted.unlink()
    project.run("-n0", "-q").stdout.fnmatch_lines([said])
