"""The public hooks, as a user's conftest implements them."""

from __future__ import annotations

import itertools

import pytest

from tests.plugin.conftest import cases, refused

CASES = cases(12, 'grade("solved", length=len(answer))')


def test_observers_see_attempts_cases_and_the_end(project, workers):
    project.suite(CASES)
    project.pytester.makeconftest(
        """
import os, pathlib

def note(word):
    with open(pathlib.Path(__file__).with_name("seen.txt"), "a") as file:
        file.write(word + "\\n")

def pytest_ultrapar_attempt(record):
    note(f"attempt {record.outcome}")

def pytest_ultrapar_case(record):
    note(f"case {record.outcome} {record.scores['length']:g}")

def pytest_ultrapar_finish(run):
    note(f"finish {run.summary.statistics.n_graded} {run.failures}")
"""
    )
    assert project.run(workers).ret == 0
    seen = (project.pytester.path / "seen.txt").read_text().splitlines()
    assert seen.count("attempt ok") == 12
    assert seen.count("case solved 1") == 10
    assert seen[-1] == "finish 12 ()"


def test_scheduler_and_broker_apply_the_groups_of_a_conftest(project, workers):
    project.write_pool(keys=2)
    project.suite(CASES)
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_assign(config, workers, lanes, cases):
    first = tuple(c.case_id for c in cases if int(c.params["prompt"].split()[1]) >= 6)
    second = tuple(c.case_id for c in cases if c.case_id not in first)
    return Assignment(
        home={workers[0]: (lanes[0].lane_id,)},
        groups=(
            Group("late", second, after=("early",)),
            Group("early", first, lanes=(lanes[1].lane_id,), at_once=1),
        ),
    )
"""
    )
    assert project.run(workers).ret == 0
    order = [int(prompt.split()[1]) for prompt in project.server.prompts]
    assert sorted(order[:6]) == list(range(6, 12))
    early = [a for a in project.rows("attempts") if a["case_id"] in _cases(project, range(6, 12))]
    assert {a["key"] for a in early} == {"key1"}
    spans = sorted((a["t_send_s"], a["t_end_s"]) for a in early)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_impossible_assignment_is_refused(project):
    project.suite(CASES)
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment

def pytest_ultrapar_assign(config, workers, lanes, cases):
    return Assignment(home={workers[0]: ("p/nowhere/key0",)})
"""
    )
    said = project.refusal(project.run("-n0"))
    assert "contains the unknown lane 'p/nowhere/key0'; the run's lanes are p/m/key0" in said


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["serial", "rotate"])
def test_modes_that_run_one_case_at_a_time_do_not_call_the_assignment_hook(project, mode):
    project.suite(CASES)
    project.pytester.makeconftest("def pytest_ultrapar_assign(): return 'nonsense'")
    assert project.run("-n0", f"--ultrapar-mode={mode}").ret == 0
    said = refused(project.run("-n0"))
    assert "pytest_ultrapar_assign must return an Assignment (got str)" in said


def test_pool_hook_replaces_the_file(project):
    project.suite(CASES)
    project.pytester.makeconftest(
        """
import os
from pytest_ultrapar.pool.load_pool import load_pool, Overrides

def pytest_ultrapar_pool(config):
    return load_pool("other.toml", environ=os.environ, overrides=Overrides())
"""
    )
    path = project.pytester.path
    path.joinpath("other.toml").write_text(
        path.joinpath("pool.toml").read_text().replace('"m"', '"other"')
    )
    assert project.run("-n0").ret == 0
    assert {row["model"] for row in project.rows()} == {"other"}


def _cases(project, numbers) -> set[str]:
    wanted = {f"say {n}" for n in numbers}
    return {row["case_id"] for row in project.rows() if row["param.prompt"] in wanted}


@pytest.mark.slow
def test_session_without_cases_keeps_latest_and_makes_no_directory(project):
    project.suite(CASES)
    assert project.run("-n0").ret == 0
    before = project.directory.resolve()
    assert project.run("-n0", "-k", "nothing_of_that_name").ret == 5
    assert project.directory.resolve() == before
    folders = [path for path in before.parent.iterdir() if path.is_dir() and not path.is_symlink()]
    assert folders == [before]
