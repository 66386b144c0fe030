"""A pool in the ini file: keys, files and servers are only needed if a case sends requests."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import cases

UNIT = "def test_adds(): assert 1 + 1 == 2\n"
MISSING = "pool.toml: provider[0].keys[0].env names the environment variable TEST_KEY_0, which is"


@pytest.fixture
def here(project, monkeypatch):
    """Unit tests and evaluations, and a pool in the ini file without its key and file."""
    project.write_pool(provider='ca_file = "no-such.pem"', base_url="https://127.0.0.1:1/v1")
    project.pytester.makeini("[pytest]\nultrapar_pool = pool.toml\n")
    project.suite(cases(["say a"]), name="test_evals.py")
    project.pytester.path.joinpath("test_unit.py").write_text(UNIT)
    monkeypatch.delenv("TEST_KEY_0")
    return project


def run(project, *arguments):
    return project.run(*arguments, pool=False)


def nothing_is_left(project, result):
    assert "results in" not in result.stdout.str()
    assert list((project.pytester.path / ".ultrapar").glob("*-*")) == []


def test_unit_tests_run_without_keys(here, workers):
    result = run(here, workers, "test_unit.py")
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    nothing_is_left(here, result)


def test_unit_tests_run_if_evaluations_are_deselected(here):
    result = run(here, "-n0", "-k", "adds")
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=1)
    nothing_is_left(here, result)


def test_missing_pool_is_an_error_only_if_cases_send_requests(here, workers):
    here.pytester.path.joinpath("pool.toml").unlink()
    assert run(here, workers, "test_unit.py").ret == 0
    assert run(here, "-n0", "--collect-only").ret == 0
    for more in ([], ["--ultrapar-model=openai/m"]):
        said = here.refusal(run(here, workers, *more))
        assert said.strip() == f"ERROR: {here.pytester.path}/pool.toml: there is no such file"


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures", "--setup-plan"])
def test_listing_needs_no_keys(here, option):
    result = run(here, "-n0", option)
    assert result.ret == 0, result.stderr.str()
    nothing_is_left(here, result)


def test_skipped_case_needs_no_keys(here):
    here.suite("@pytest.mark.skip\n" + cases(["say a"]).strip(), name="test_evals.py")
    result = run(here, "-n0", "test_evals.py")
    assert result.ret == 0, result.stderr.str()
    result.assert_outcomes(skipped=1)


def test_case_that_sends_needs_its_key(here, workers):
    result = run(here, workers)
    said = here.refusal(result)
    assert MISSING in said
    assert said.rstrip().endswith("; to run all tests except evaluations: pytest -o ultrapar_pool=")
    assert run(here, "-n0", "-o", "ultrapar_pool=").ret == 0
    nothing_is_left(here, result)


def test_case_that_sends_needs_the_file_of_its_authorities(here, monkeypatch):
    monkeypatch.setenv("TEST_KEY_0", "k")
    said = here.refusal(run(here, "-n0"))
    assert "provider[0].ca_file names a file that cannot be read (No such file" in said


@pytest.fixture
def two(project, monkeypatch):
    """A pool of two providers; the key of one of them is not set."""
    project.write_pool()
    path = project.pytester.path / "pool.toml"
    own = path.read_text()
    other = own.removeprefix("schema = 1\n").replace('"m"', '"n"').replace('"p"', '"q"')
    path.write_text(own + other.replace("TEST_KEY_0", "TEST_KEY_1"))
    monkeypatch.delenv("TEST_KEY_1")
    return project


def test_key_of_an_unselected_model_is_not_needed(two, workers):
    two.suite(cases(["say a"]))
    result = two.run(workers, "--ultrapar-model=m")
    assert result.ret == 0, result.stderr.str()
    assert two.server.prompts == ["say a"]
    assert "environment variable TEST_KEY_1" in two.run(workers).stderr.str()


def test_key_of_a_model_of_deselected_cases_is_not_needed(two):
    two.suite(cases(["say a"]).replace("answer, prompt)", "answer, prompt, model)"))
    result = two.run("-n0", "-k", "[m-")
    assert result.ret == 0, result.stderr.str()
    assert two.server.prompts == ["say a"]


def test_resumed_run_that_is_complete_needs_no_keys(project, workers, monkeypatch):
    project.suite(cases(["say a"]))
    assert project.run("-n0").ret == 0
    monkeypatch.delenv("TEST_KEY_0")
    result = project.run(workers, "--ultrapar-resume=latest")
    assert result.ret == 0, result.stderr.str()
    assert project.server.prompts == ["say a"]
