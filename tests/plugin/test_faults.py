"""`--ultrapar-faults`: a run whose simulated provider fails as described in a file."""

from __future__ import annotations

from hashlib import sha256

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.testing import read_server_log
from tests.plugin.conftest import cases
from tests.simulated_pool import pool_text

POOL = pool_text()
SUITE = cases(6, 'assert answer == "echo: " + answer[6:]')
FAULTS = """
[[fault]]
name = "burst"
kind = "error"
status = 503
headers = { retry-after = "1", retry-after-ms = "10" }
for_requests = 2
"""


@pytest.fixture
def simulated(project):
    project.pytester.path.joinpath("pool.toml").write_text(POOL)
    project.pytester.path.joinpath("faults.toml").write_text(FAULTS)
    project.suite(SUITE)
    return project


@pytest.mark.slow
def test_run_has_the_faults_of_its_file_and_reports_them(simulated):
    result = simulated.run("-n0", "--ultrapar-faults", "faults.toml")
    assert result.ret == 0
    assert "simulated provider fails as faults.toml specifies" in result.stdout.str()
    assert "matched no request" not in result.stdout.str()
    assert set(simulated.outcomes().values()) == {"solved"}
    log = read_server_log(simulated.directory / "simulator.jsonl")
    assert [row.fault for row in log.requests].count("burst") == log.count(503) == 2
    assert log.count(200) == 6
    assert read_manifest(simulated.directory).faults == sha256(FAULTS.encode()).hexdigest()


@pytest.mark.slow
def test_fault_that_matched_no_request_is_reported_at_the_end(simulated):
    never = '[[fault]]\nname = "storm"\nkind = "hang"\nafter_requests = 1000\n'
    simulated.pytester.path.joinpath("faults.toml").write_text(FAULTS + never)
    result = simulated.run("-n0", "--ultrapar-faults", "faults.toml")
    assert result.ret == 0
    said = [line for line in result.stdout.lines if "matched no request" in line]
    assert said == ['the simulated provider: fault "storm" matched no request']


@pytest.mark.slow
def test_manifest_of_a_run_without_faults_names_no_file(simulated):
    assert simulated.run("-n0").ret == 0
    assert read_manifest(simulated.directory).faults is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ultrapar-faults", "none.toml"], "none.toml: there is no such file"),
        (["--ultrapar-faults", "bad.toml"], "bad.toml: fault[0].key is an unknown key in pool"),
        (
            ["--ultrapar-faults", "faults.toml", "--ultrapar-simulator", "http://127.0.0.1:1"],
            "--ultrapar-faults cannot be used together with --ultrapar-simulator",
        ),
    ],
)
def test_unusable_faults_end_the_run_before_any_request(simulated, arguments, says):
    bad = '[[fault]]\nkind = "hang"\nkey = "key1"\n'
    simulated.pytester.path.joinpath("bad.toml").write_text(bad)
    assert says in simulated.refusal(simulated.run("-n0", *arguments))


def test_faults_are_refused_for_a_pool_without_a_simulated_provider(project):
    project.pytester.path.joinpath("faults.toml").write_text(FAULTS)
    project.suite(SUITE)
    said = project.refusal(project.run("-n0", "--ultrapar-faults", "faults.toml"))
    assert "--ultrapar-faults needs a selected model of a provider with api = " in said


def test_fault_of_a_provider_that_is_not_simulated_is_refused(simulated, monkeypatch):
    monkeypatch.setenv("REAL_KEY", "sk-0")
    real = """
    [[provider]]
    name = "real"
    api = "openai"
    base_url = "http://127.0.0.1:1/v1"
    keys = [{ name = "key1", env = "REAL_KEY" }]
    [[provider.model]]
    name = "n"
    """
    simulated.pytester.path.joinpath("pool.toml").write_text(POOL + real)
    bad = '[[fault]]\nkind = "hang"\nprovider = "real"\n'
    simulated.pytester.path.joinpath("bad.toml").write_text(bad)
    said = simulated.refusal(simulated.run("-n0", "--ultrapar-faults", "bad.toml"))
    assert "fault[0].provider is an unknown provider in pool.toml" in said
