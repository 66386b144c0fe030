"""A pool that does not work ends a run early, with a reason for each lane and few requests."""

from __future__ import annotations

import socket

import pytest

from tests.plugin.conftest import CANARY, cases
from tests.scripted_server import refusing

REMOVED = "removed for the rest of the run"
SUITE = cases(40)


def test_dead_lanes_are_removed_and_the_other_cases_run(project):
    project.write_pool(keys=3, models=("m", "n"))
    wrong = refusing(401, f"{CANARY}-1")
    missing = refusing(404, "n", message="The deployment does not exist")
    project.server.weather = lambda asked: wrong(asked) or missing(asked)
    project.suite(SUITE)
    result = project.run("-n0")
    assert result.ret == 1
    assert project.kinds() == {("solved", None): 40, ("infra", "no_lane"): 40}
    why = "was refused (401, or a message that rejects the key)"
    key1 = f"key p/key1 (environment TEST_KEY_1) {why}: {REMOVED}"
    where = f"127.0.0.1:{project.server.port}/v1"
    model_n = f"instance p/n ({where}) was not found (404), or does not serve n: {REMOVED}"
    found = project.reasons()
    assert {lane: found[lane] for lane in ("p/m/key0", "p/m/key1", "p/m/key2")} == {
        "p/m/key0": "",
        "p/m/key1": key1,
        "p/m/key2": "",
    }
    assert all(found[f"p/n/key{n}"] in {key1, model_n} for n in range(3))
    # The requests in flight, and the probe.
    assert project.server.tokens.count(f"{CANARY}-1") <= 4 + 1
    # The requests in flight, and a probe for the key and one for the model.
    assert len(project.server.prompts) <= 40 + 3 * 4 + 2 + 1
    output = result.stdout.str() + project.report.str()
    assert output.count(key1) >= 1
    assert output.count(model_n) >= 1
    assert CANARY not in output
    assert (
        "\n40 cases ended without an answer (infra): continue with the same command and "
        f"--ultrapar-resume {project.directory.resolve().name}, once the cause is fixed\n"
    ) in result.stdout.str()


def test_run_with_a_wrong_key_ends_with_the_reason(project):
    wrong = f"{CANARY}-0"
    project.server.weather = refusing(401, wrong, message=f"no such key {wrong}")
    project.suite(cases(12))
    said = project.run("-n0").stdout.str().partition("= ultrapar =")[2]
    verdict, *lines = [line for line in said.replace("\n  ", " ").split("\n")[1:] if line]
    assert verdict == "12 cases: 0 solved, 12 infra; coverage 0.0 %"
    assert lines[0].startswith(
        "key p/key0 (environment TEST_KEY_0) was refused (401, or a message that rejects the key): "
        f"{REMOVED}"
    )
    assert lines[1].startswith(
        'the provider said: HTTP 401: {"error": {"message": "no such key ***'
    )
    assert lines[2] == (
        "set each variable above to a valid key, then resume the run (the command is below)"
    )
    assert [line.split()[0] for line in lines[3:-1]] == ["results", "12", "FAILED:"]
    assert CANARY not in said


def test_report_names_the_setting_if_a_server_requires_a_key_and_gets_none(project):
    project.write_pool()
    path = project.pytester.path / "pool.toml"
    path.write_text(path.read_text().replace(', env = "TEST_KEY_0"', ""))
    project.server.weather = refusing(401, "none", message="Unauthorized")
    project.suite(cases(2))
    said = project.run("-n0").stdout.str()
    assert 'the provider said: HTTP 401: {"error": {"message": "Unauthorized"' in said
    assert "\nno key was sent: in the pool, set env to the name of the environment" in said


@pytest.mark.slow
def test_wrong_keys_end_the_run(project):
    project.write_pool(keys=3)
    project.server.weather = refusing(403, *(f"{CANARY}-{n}" for n in range(3)))
    project.suite(SUITE)
    result = project.run("-n0")
    assert result.ret == 1
    assert project.kinds() == {("infra", "no_lane"): 40}
    assert project.reasons() == {
        f"p/m/key{n}": f"key p/key{n} (environment TEST_KEY_{n}) may not use the model m, or there "
        f"is no such model: {REMOVED}"
        for n in range(3)
    }
    # The requests in flight, and a probe for each key.
    assert len(project.server.prompts) <= 3 * 4 + 3
    result.stdout.fnmatch_lines(["*40 infra in *"])


@pytest.mark.slow
def test_refused_connections_end_the_run(project):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    project.write_pool(base_url=f"http://127.0.0.1:{port}/v1")
    project.suite(SUITE)
    assert project.run("-n0", "--ultrapar-wait-for-servers=0").ret == 1
    assert project.kinds() == {("infra", "no_lane"): 40}
    assert project.reasons()["p/m/key0"].startswith(
        "lane p/m/key0 could not be reached 5 times in a row over "
    )
    # Four seats, each tried five times or a little more.
    assert len(project.rows("attempts")) <= 4 * 7
