"""--ultrapar-policy and mode phase, as users set them and as conftests implement them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugin.conftest import cases

ROOT = Path(__file__).parents[2]
CASES = cases(["say a", "say b"])
DOCUMENTED = ("-p", "bench_suites.original_scripts.plugin")


@pytest.fixture
def documented(monkeypatch):
    """Options that load the policies of the benchmark into a user's project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return DOCUMENTED


def test_default_policy_stays_when_a_conftest_adds_one(project):
    project.suite(CASES)
    project.pytester.makeconftest(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_ultrapar_policies(): return ['mine']"
    )
    listed = project.run_here("--collect-only")
    assert listed.ret == 0
    assert "mode ultra, policy even," in listed.stdout.str()


OFFER = """
from pytest_ultrapar import Assignment, ConfigError, Group

def pytest_ultrapar_policies(config, mode):
    return ["cut:N"]

def pytest_ultrapar_assign(config, lanes, cases, pool, policy, mode):
    name, _, number = policy.partition(":")
    if name != "cut":
        return None
    if number != "1":
        raise ConfigError(f"cut:N needs N = 1 (got {number!r})")
    with open(config.rootpath / "seen.txt", "a") as seen:
        seen.write(f"{mode} {policy} {pool.models} {pool.seats(lanes)}\\n")
    return Assignment(groups=(Group("all", tuple(c.case_id for c in cases), at_once=1),))
"""


def test_policy_of_a_conftest_is_applied(project):
    project.suite(CASES)
    project.pytester.makeconftest(OFFER)
    result = project.run("-n0", "--ultrapar-policy", "cut:1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*policy cut:1,*", "ultrapar: cases in 1 group: all (2)"])
    assert (project.pytester.path / "seen.txt").read_text() == "ultra cut:1 ('m',) 4\n"
    manifest = json.loads((project.directory / "manifest.json").read_text())
    assert manifest["policy"] == "cut:1"


@pytest.mark.slow
def test_conftest_can_refuse_the_argument_of_its_policy(project):
    project.suite(CASES)
    project.pytester.makeconftest(OFFER)
    said = project.refusal(project.run("-n2", "--ultrapar-policy", "cut:2"))
    assert "cut:N needs N = 1 (got '2')" in said


def test_mode_phase_needs_a_conftest_or_plugin_that_defines_phases(project, workers):
    project.suite(CASES)
    said = project.refusal(project.run_here(workers, "--ultrapar-mode", "phase"))
    assert "--ultrapar-mode phase: no conftest or plugin in this project defines" in said


def test_mode_phase_of_a_conftest_is_in_manifest_rows_and_benchmark_json(project):
    project.suite(CASES)
    project.pytester.makeconftest(OFFER.replace('"cut:N"', '"cut:1"'))
    assert project.run("-n0", "--ultrapar-mode", "phase").ret == 0
    assert (project.pytester.path / "seen.txt").read_text() == "phase cut:1 ('m',) 4\n"
    manifest = json.loads((project.directory / "manifest.json").read_text())
    assert (manifest["mode"], manifest["policy"]) == ("phase", "cut:1")
    assert {row["mode"] for row in project.rows()} == {"phase"}
    names = {
        entry["name"]
        for entry in json.loads((project.directory / "benchmark.json").read_text())["benchmarks"]
    }
    suite = project.rows()[0]["suite"]
    assert {f"{suite}[phase]", f"{suite}[serial]", f"{suite}[phase-m]"} <= names


def test_documented_phases_refuse_an_unknown_suite(project, documented):
    project.suite(CASES)
    said = project.refusal(project.run(*documented, "-n0", "--ultrapar-mode", "phase"))
    assert "--ultrapar-mode phase cannot run suite" in said
    assert "it runs only phase51, phase52, phase53, phase54, phase55" in said


@pytest.mark.parametrize("policy", ["exclusive", "batch:3", "serial", "by-key"])
def test_policies_with_their_own_order_are_refused_in_mode_phase(project, policy):
    project.suite(CASES)
    options = ("--ultrapar-mode", "phase", "--ultrapar-policy", policy)
    said = project.refusal(project.run_here(*DOCUMENTED, "-n0", *options))
    assert "unknown in mode phase; allowed: model-key, group-key, even" in said


@pytest.mark.slow
def test_waiting_cases_do_not_keep_the_first_group_from_sending(project, workers):
    # Twice four seats and sixteen: at most 24 cases send requests or are open in one process.
    project.suite(cases(60))
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_assign(cases):
    ids = tuple(case.case_id for case in cases)
    return Assignment(groups=(Group("late", ids[:50], after=("early",)), Group("early", ids[50:])))
"""
    )
    assert project.run(workers).ret == 0
    order = [int(prompt.split()[1]) for prompt in project.server.prompts]
    assert set(order[:10]) == set(range(50, 60))


def test_group_whose_cases_cannot_start_keeps_no_other_waiting(project):
    """Mode serial runs model after model; a session fixture of the first model's test fails."""
    project.write_pool(models=("m", "n"))
    project.suite(
        """
@pytest.fixture(scope="session")
def broken(): raise RuntimeError("no data")

@prefetch
async def unasked(llm, broken) -> str: return ""

@pytest.mark.ultrapar(models="m")
def test_unasked(unasked): pass

@pytest.mark.ultrapar(models="n")
@pytest.mark.parametrize("prompt", ["say b"])
def test_asked(answer, grade): grade("solved")
"""
    )
    options = ("--ultrapar-policy=serial", "--ultrapar-episode-timeout=20")
    project.run("-n0", *options)
    assert project.outcomes() == {
        "test_unasked[m-r0]": "error",
        "test_asked[n-say b-r0]": "solved",
    }
