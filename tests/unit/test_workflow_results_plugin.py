"""The tables at the end of a pytest run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench_suites.workflow_results import plugin
from bench_suites.workflow_results.plugin import phases_in
from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.coordinator.finish import FinishedRun
from pytest_ultrapar.store.cases_file import Shared, write_cases, write_shared
from pytest_ultrapar.store.manifest import read_manifest
from tests.light import LIGHT
from tests.unit.finished_run import case, make_run

ROOT = Path(__file__).parents[2]
POOL = """
schema = 1
[[provider]]
name = "lab"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 8 }
latency = { kind = "fixed", median_s = 0.0 }
[[provider.model]]
name = "one-7b"
persona = "obedient"
[[provider.model]]
name = "two-72b"
persona = "repairing"
"""
SUITE = """
import pytest
from bench_suites import workflow
from pytest_ultrapar import prefetch

@prefetch
async def episode(
    llm, case, task_type, prompt_type, difficulty, tool_success_rate
) -> workflow.Episode:
    task = workflow.TASKS.draw(task_type, case.repeat, case.run_seed)
    return await workflow.run_episode(
        llm, task, prompt_type=prompt_type, difficulty=difficulty,
        tool_success_rate=tool_success_rate, seed=case.seed,
    )

@pytest.mark.parametrize("task_type", ["basic_task"])
@pytest.mark.parametrize("prompt_type", ["optimal"])
@pytest.mark.parametrize("difficulty", ["easy"])
@pytest.mark.parametrize("tool_success_rate", RATES)
def test_it(episode, grade):
    grade(workflow.score(episode))
"""
TAKES = """
import pytest
pytestmark = pytest.mark.ultrapar(taken_from="phase51")
"""
CONFTEST = """
pytest_plugins = ["bench_suites.workflow_results.plugin"]
"""
OTHER = """
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "hello"}])).text

def test_it(answer): ...
"""


class Project:
    """A user's suites with the plugin in their conftest."""

    def __init__(self, pytester):
        self.pytester = pytester
        path = pytester.path
        (path / "pool.toml").write_text(POOL)
        (path / "conftest.py").write_text(CONFTEST)
        for suite, body in (
            ("phase51", SUITE.replace("RATES", "[0.8]")),
            ("phase54", TAKES + SUITE.replace("RATES", "[0.8, 0.6]")),
            ("phase55", TAKES + SUITE.replace("RATES", "[0.8]")),
            ("other", OTHER),
        ):
            (path / suite).mkdir()
            (path / suite / f"test_{suite}.py").write_text(body)

    def run(self, *arguments):
        return self.pytester.runpytest_subprocess(
            *LIGHT, "--ultrapar-pool=pool.toml", *arguments, timeout=120
        )

    def tables(self, directory: str = ".ultrapar/latest") -> pytest.LineMatcher:
        path = self.pytester.path / directory / "phases.md"
        return pytest.LineMatcher(path.read_text(encoding="utf-8").splitlines())

    def files(self, out):
        return sorted(path.name for path in (self.pytester.path / out).glob("aggregate.*"))


@pytest.fixture
def project(pytester, monkeypatch, outside_xdist):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Project(pytester)


def cases_of(*suites):
    from msgspec.structs import replace

    return [replace(case(index), suite=suite) for index, suite in enumerate(suites)]


def test_phases_are_found_without_reading_the_cases(tmp_path):
    write_cases(tmp_path, cases_of("phase54", "mine", "phase51", "phase54", "phase56"))
    assert phases_in(tmp_path) == ["5.1", "5.4"]


def test_phase_that_took_all_of_its_cells_is_found(tmp_path):
    write_cases(tmp_path, cases_of("phase51"))
    write_shared(tmp_path, [Shared("phase55", ("case0",))])
    assert phases_in(tmp_path) == ["5.1", "5.5"]


@pytest.mark.slow
def test_run_of_phases_prints_their_tables_at_the_end(project):
    result = project.run("phase51", "phase54", "-n1", "--ultrapar-out=out")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*= ultrapar =*",
            "*= workflow phases =*",
            "Phase 5.1: *",
            "Phase 5.4: *",
            "tables in *out/phases.md",
            "4 rows in *: aggregate.parquet, aggregate.csv",
        ]
    )
    project.tables("out").fnmatch_lines(
        [
            "SIMULATED: *",
            "## Phase 5.1: *",
            "| one-7b *| * 1 | * 0 | * 100.0 |*",
            "| two-72b *",
            "## Phase 5.4: *",
            "| one-7b *| 0.8 [[]1] *",
            "| one-7b *| 0.6 *",
            "[[]1] from phase 5.1*",
            "4 rows in *: aggregate.parquet, aggregate.csv",
        ]
    )
    assert project.files("out") == ["aggregate.csv", "aggregate.parquet"]
    rows = pq.read_table(project.pytester.path / "out" / "aggregate.parquet").to_pylist()
    assert [row["total"] for row in rows] == [1, 1, 1, 1]


@pytest.mark.slow
def test_quiet_run_prints_nothing_and_writes_its_files(project):
    result = project.run("phase51", "-q", "-q", "--ultrapar-out=out")
    assert result.ret == 0
    assert "Phase 5" not in result.stdout.str()
    assert project.files("out") == ["aggregate.csv", "aggregate.parquet"]


@pytest.mark.slow
def test_run_of_other_suites_gets_no_tables(project):
    result = project.run("other", "--ultrapar-out=out")
    assert result.ret == 0
    assert "workflow phases" not in result.stdout.str()
    assert project.files("out") == []


@pytest.mark.slow
def test_failure_is_one_line_and_does_not_affect_the_run(project):
    (project.pytester.path / "phase51" / "test_phase51.py").write_text(OTHER)
    result = project.run("phase51", "--ultrapar-out=out")
    assert result.ret == 0
    lines = result.stdout.str().splitlines()
    (line,) = [line for line in lines if line.startswith("cannot make the tables of the phases: ")]
    assert "phases: phase51/test_phase51.py::test_it[one-7b-r0] has no parameter task_t" in line
    assert "python -m bench_suites.workflow_results " in line
    assert result.parseoutcomes() == {"solved": 2}
    assert (project.pytester.path / "out" / "results.parquet").is_file()


@pytest.mark.parametrize(("host", "n_tried"), [("ci-3", 0), (None, 1)])
def test_host_without_cases_makes_no_tables(tmp_path, pytestconfig, monkeypatch, host, n_tried):
    tried = []
    monkeypatch.setattr(plugin, "_tables", lambda *what: tried.append(what) or ["tables"])
    run = make_run(tmp_path / "run", [case(0)], cluster_run="r" if host else None, host=host)
    finished = FinishedRun(run.path, read_manifest(run.path), compact(run.path), ())
    plugin.WorkflowResults(pytestconfig).pytest_ultrapar_finish(finished)
    assert len(tried) == n_tried
