"""Cases that a suite takes from another suite, in the same session or from an earlier run."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from pytest_ultrapar.store.cases_file import Shared, read_shared
from tests.plugin.conftest import Project

BASE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, level, place) -> str:
    return (await llm.chat([{"role": "user", "content": f"say {level} {place}"}])).text
"""
FIRST = (
    BASE
    + """
@pytest.mark.parametrize("place", ["x"])
@pytest.mark.parametrize("level", [0.8])
def test_first(answer): pass
"""
)
SECOND = (
    BASE
    + """
@pytest.mark.ultrapar(taken_from="first")
@pytest.mark.parametrize("place", ["x"])
@pytest.mark.parametrize("level", [0.9, 0.8, 0.7])
def test_second(answer): pass
"""
)


@pytest.fixture
def two(project: Project) -> Project:
    for name, text in (("first", FIRST), ("second", SECOND)):
        folder = project.pytester.path / name
        folder.mkdir()
        folder.joinpath(f"test_{name}.py").write_text(text)
    return project


def asked(project: Project) -> Counter[str]:
    return Counter(project.server.prompts)


def test_common_cells_are_sent_once(two):
    assert two.run("-n0", "--ultrapar-repeats=2").ret == 0
    assert asked(two) == {"say 0.8 x": 2, "say 0.9 x": 2, "say 0.7 x": 2}
    assert Counter(row["suite"] for row in two.rows()) == {"first": 2, "second": 4}
    (shared,) = read_shared(two.directory)
    assert (shared.suite, shared.reused) == ("second", ())
    assert sorted(shared.here) == sorted(r["case_id"] for r in two.rows() if r["suite"] == "first")


@pytest.mark.slow
def test_plan_reports_shared_cases_in_the_same_way_as_the_run(two):
    said = (
        "second: 2 cases not sent, because their answers are shared with other suites of this run"
    )
    assert said in two.run("-n0", "--ultrapar-repeats=2", "--ultrapar-plan").stdout.str()
    assert f"ultrapar: {said}" in two.run("-n0", "--ultrapar-repeats=2").stdout.str()


def test_shared_cells_are_listed_as_deselected(two):
    result = two.run("-n0", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*3/4 tests collected (1 deselected)*"])


@pytest.mark.slow
def test_cells_left_out_of_the_other_suite_are_not_shared(two):
    assert two.run("-n0", "-k", "second or r1", "--ultrapar-repeats=2").ret == 0
    suites = {(r["suite"], r["repeat"]) for r in two.rows() if r["param.level"] == 0.8}
    assert suites == {("second", 0), ("first", 1)}


@pytest.mark.slow
def test_cells_of_an_earlier_run_are_reused(two):
    assert two.run("-n0", "first").ret == 0
    (answered,) = two.rows()
    assert not (two.directory / "taken.json").exists()
    earlier = two.directory.resolve().name
    two.server.reset()
    assert two.run("-n0", "second", "--ultrapar-reuse=latest").ret == 0
    assert asked(two) == {"say 0.9 x": 1, "say 0.7 x": 1}
    manifest = json.loads((two.directory / "manifest.json").read_text())
    assert manifest["reused"] == earlier
    assert read_shared(two.directory) == [Shared("second", (), (answered["case_id"],))]


@pytest.mark.slow
def test_run_named_in_a_session_that_never_started_is_not_reused_later(two):
    assert two.run("-n0", "first").ret == 0
    suite = two.pytester.path / "second" / "test_second.py"
    suite.write_text(SECOND.replace("async def answer(llm", "async def answer(llm, unknown"))
    out = "--ultrapar-out=out"
    assert two.run("-n2", "second", "--ultrapar-reuse=latest", out).ret == 4
    suite.write_text(SECOND)
    two.server.reset()
    assert two.run("-n2", "second", out).ret == 0
    assert asked(two) == {"say 0.8 x": 1, "say 0.9 x": 1, "say 0.7 x": 1}
    assert not (two.pytester.path / "out" / "taken.json").exists()


@pytest.mark.slow
def test_ungraded_cells_are_not_reused(two):
    first = two.pytester.path / "first" / "test_first.py"
    first.write_text(FIRST.replace('f"say {level} {place}"', '"garbage"'))
    assert two.run("-n0", "first", "--ultrapar-max-attempts=1").ret == 1
    two.server.reset()
    assert two.run("-n0", "second", "--ultrapar-reuse=latest").ret == 0
    assert asked(two)["say 0.8 x"] == 1


REFUSED = {
    "other seed": (["--ultrapar-seed=7"], "the run seed was 0 and is 7 now"),
    "no such run": (["--ultrapar-reuse=nowhere"], "no run found at nowhere"),
    "other data": ([], "the task library was d1 and is d2 now"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_run_with_other_requests_is_refused(two, workers, name):
    options, message = REFUSED[name]
    conftest = two.pytester.path / "conftest.py"
    conftest.write_text('def pytest_ultrapar_data(): return {"task library": "d1"}\n')
    assert two.run("-n0", "first").ret == 0
    two.server.reset()
    if not options:
        conftest.write_text('def pytest_ultrapar_data(): return {"task library": "d2"}\n')
    result = two.run(workers, "second", "--ultrapar-reuse=latest", *options)
    assert message in two.refusal(result)
