"""`--ultrapar-check`: no case is sent while a lane that the cases need is dead."""

from __future__ import annotations

import signal
import socket
import time

import msgspec
import pytest

from pytest_ultrapar.coordinator.check import pool_check
from pytest_ultrapar.coordinator.keys.key_lock_file import Holder
from pytest_ultrapar.engine.lane_check import MESSAGES
from pytest_ultrapar.report.wait_notice import WaitingLine
from pytest_ultrapar.store.manifest import read_manifest
from tests.faults.byte_faults import refuse
from tests.plugin.conftest import CANARY, cases, refused, said_by
from tests.running import Running
from tests.scripted_server import refusing

QUESTION = MESSAGES[0]["content"]
SUITE = cases(["say a", "say b"])


def cases_sent(project) -> list[str]:
    return [prompt for prompt in project.server.prompts if prompt != QUESTION]


def runs(project) -> list[str]:
    return [path.name for path in project.pytester.path.glob(".ultrapar/2*")]


def test_dead_key_ends_the_run_before_any_case(project):
    project.write_pool(keys=3)
    dead = f"{CANARY}-1"
    project.server.weather = refusing(401, dead, message=f"wrong key {dead}")
    project.suite(SUITE)
    said = refused(project.run("-n0", "--ultrapar-check"))
    assert (
        "ERROR: --ultrapar-check: the selected cases need 3 lanes, of which 1 failed, "
        "so no case was sent:\n"
        "  failed: p/m/key1: key p/key1 (environment TEST_KEY_1) was refused (401, "
        "or a message that rejects the key): HTTP 401: "
    ) in said
    assert "or continue without them (--ultrapar-check=warn)" in said
    assert sorted(project.server.prompts) == [QUESTION] * 3
    assert runs(project) == []


def test_dead_key_is_reported_and_the_run_continues_with_warn(project):
    project.write_pool(keys=2)
    project.server.weather = refusing(403, f"{CANARY}-1")
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-check=warn")
    said_by(result, 0)
    result.stdout.fnmatch_lines(
        [
            "ultrapar: check: 1 of 2 lanes ok: 1 forbidden",
            "ultrapar: check: failed: p/m/key1: key p/key1 (environment TEST_KEY_1) may not use "
            "the model m, or there is no such model: HTTP 403: *wrong key*",
            "ultrapar: check: the run continues without p/m/key1",
        ]
    )
    project.report.fnmatch_lines(
        [
            "in the initial check, key p/key1 (environment TEST*KEY*1) may not use the model m, or "
            "there is no such model: removed for the rest of the run (*)",
        ]
    )
    assert set(project.outcomes().values()) == {"solved"}
    # By the check; the run itself sends no request on it.
    assert project.server.tokens.count(f"{CANARY}-1") == 1
    effective = {one.name: one for one in read_manifest(project.directory).effective}
    assert effective["check"].value == "warn"
    assert effective["check"].origin == "command line --ultrapar-check"


def test_rate_limited_lane_counts_as_alive_and_stays_paused(project):
    project.write_pool(keys=2)
    wait = b"Retry-After: 600"
    project.server.weather = refusing(429, f"{CANARY}-1", headers=[wait])
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-check")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "ultrapar: check: 1 of 2 lanes ok: 1 rate",
            "ultrapar: check: limited: p/m/key1: the rate limit is reached: (retry after "
            "10 min 00 s) HTTP 429: *wrong key*",
            "ultrapar: check: limited and unsure lanes may recover; they do not stop the run",
        ]
    )
    assert set(project.outcomes().values()) == {"solved"}
    assert project.server.tokens.count(f"{CANARY}-1") == 1


def test_temporary_failure_does_not_stop_the_run(project):
    not_now = refuse(503, message="not now")
    project.server.weather = lambda asked: not_now if asked.number == 1 else None
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-check")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "ultrapar: check: 0 of 1 lane ok: 1 overload",
            "ultrapar: check: unsure: p/m/key0: the server failed or is overloaded: HTTP 503: "
            "*not now*",
        ]
    )
    assert set(project.outcomes().values()) == {"solved"}


@pytest.mark.slow
def test_only_lanes_that_cases_need_are_checked(project):
    project.write_pool(models=("m", "gone", "skipped"))
    project.server.weather = refusing(404, "gone", "skipped")
    project.suite(
        '\n@pytest.mark.ultrapar(models="m")' + SUITE + '\n@pytest.mark.ultrapar(models="skipped")'
        '\n@pytest.mark.skip\n@pytest.mark.parametrize("prompt", ["say c"])\n'
        "def test_not(answer): pass\n"
    )
    assert project.run("-n0", "--ultrapar-check").ret == 0
    assert project.server.prompts.count(QUESTION) == 1
    project.server.reset()
    assert project.run("-n0", "--ultrapar-check", "--ultrapar-resume=latest").ret == 0
    assert project.server.prompts == []


@pytest.mark.parametrize("option", ["--ultrapar-plan", "--collect-only"])
def test_session_without_requests_checks_no_lane(project, option):
    project.suite(SUITE)
    assert project.run("-n0", "--ultrapar-check", option).ret == 0
    assert project.server.prompts == []


def test_path_after_the_option_is_refused_as_its_value(project):
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-check", "test_suite.py")
    project.refusal(result)
    result.stderr.fnmatch_lines(
        [
            "ERROR: --ultrapar-check takes fail or warn (got 'test_suite.py'); if a test path "
            "follows, "
            "write --ultrapar-check=fail"
        ]
    )
    assert project.run("-n0", "--ultrapar-check=fail", "test_suite.py").ret == 0


@pytest.mark.slow
def test_check_and_run_together_keep_the_rate(project):
    arrivals_s: list[float] = []
    project.server.weather = lambda _: arrivals_s.append(time.monotonic())
    project.write_pool(models=("m", "n"), key=", qps = 2")
    project.suite(SUITE)
    assert project.run("-n0", "--ultrapar-check").ret == 0
    assert [prompt == QUESTION for prompt in project.server.prompts] == [True] * 2 + [False] * 4
    assert arrivals_s[2] - arrivals_s[1] > 0.4


def test_next_run_keeps_the_rate_after_a_failed_check(project):
    project.write_pool(key=", rpm = 60")
    project.server.weather = refusing(401, f"{CANARY}-0")
    project.suite(SUITE)
    assert project.run("-n0", "--ultrapar-check").ret == 4
    (lock,) = project.locks.iterdir()
    free_s = msgspec.json.decode(lock.read_bytes(), type=Holder).free_s
    assert free_s is not None
    assert free_s > time.monotonic() - 60


@pytest.mark.slow
def test_interrupted_check_prints_its_results(project, monkeypatch):
    project.write_pool(keys=2)
    project.server.weather = refusing(401, f"{CANARY}-1")
    project.suite(SUITE)

    def interrupt(_, what, *__):
        # Now all lanes but one have a result.
        if what == "1 lane":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(pool_check, "_QUIET_S", 0.05)
    monkeypatch.setattr(WaitingLine, "say", interrupt)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with (project.pytester.path / "pool.toml").open("a") as pool:
            pool.write(
                '[[provider]]\nname = "q"\napi = "openai"\nkeys = [{ name = "none" }]\n'
                f'base_url = "http://127.0.0.1:{silent.getsockname()[1]}/v1"\n'
                '[[provider.model]]\nname = "n"\n'
            )
        result = project.pytester.runpytest_inprocess(
            "--ultrapar-pool=pool.toml", "--ultrapar-check", no_reraise_ctrlc=True
        )
    assert result.ret == 2
    result.stdout.fnmatch_lines(
        [
            "ultrapar: check: interrupted, 1 of 3 lanes ok: 1 auth",
            "ultrapar: check: failed: p/m/key1: key p/key1 (environment TEST_KEY_1) was refused *",
        ]
    )
    assert cases_sent(project) == []


@pytest.mark.slow
def test_interrupt_ends_the_check_and_the_run(project):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        project.write_pool(base_url=url, timeout_s=600)
        project.suite(SUITE)
        with Running(project.pytester.path, "--ultrapar-check") as running:
            connection, _ = silent.accept()
            with connection:
                running.note_family()
                running.interrupt()
                code, said = running.wait()
    assert code == 2
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said
    assert running.left_behind() == []
    assert runs(project) == []
