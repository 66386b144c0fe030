"""`python -m bench_suites.workflow_results`: its output, files and errors."""

from __future__ import annotations

import csv
import re
import shutil
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from bench_suites.workflow.aggregate import aggregate
from bench_suites.workflow_results.__main__ import main
from bench_suites.workflow_results.bench_case import NEVER_RAN
from bench_suites.workflow_results.run_cases import read_run
from pytest_ultrapar.store.cases_file import Shared, write_shared
from tests.unit.finished_run import NOW, run_of_seven
from tests.unit.test_workflow_aggregate import COLUMNS
from tests.unit.workflow_results_runs import bench_case, some, write_run


def mixed_cases():
    return [
        *some("phase51", solved=2, partial=1, infra=1),
        bench_case("phase51", NEVER_RAN, repeat=9),
        *some("phase53", unsolved=1, flaw="tool_misuse"),
    ]


@pytest.fixture(params=["parquet", "json"])
def run(request, tmp_path):
    return write_run(tmp_path / "run", mixed_cases(), storage_format=request.param).path


def test_run_is_read_the_same_from_either_format(run):
    found = read_run(str(run))
    assert found.simulated
    assert found.run_id.startswith("20300102T030405Z-")
    outcomes = [case.result.outcome for case in found.cases]
    assert outcomes == ["solved", "solved", "partial", "infra", NEVER_RAN, "unsolved"]
    first, flawed = found.cases[0], found.cases[-1]
    assert first.result.scores == {
        "reachable": 1.0,
        "workflow": 0.9,
        "workflow_sound": 0.9,
        "phase2": 0.9,
        "turns": 5.0,
    }
    assert (first.result.ended_at, first.result.duration_s) == (NOW + timedelta(seconds=3), 2.0)
    assert (first.flaw, first.severity, first.repeat) == (None, None, 0)
    assert (flawed.flaw, flawed.severity) == ("tool_misuse", "severe")
    assert flawed.result.prompt_type == "flawed_tool_misuse"
    assert found.cases[4].result.model == "m"


def test_files_hold_the_51_columns_and_infra(run, capsys):
    assert main([str(run)]) == 0
    table = pq.read_table(run / "aggregate.parquet")
    assert table.column_names == [*COLUMNS, "infra"]
    assert table.schema.metadata[b"ultrapar.simulated"] == b"true"
    rows = table.to_pylist()
    assert rows == aggregate(case.result for case in read_run(str(run)).cases)
    flawed, optimal = rows
    assert flawed["prompt_type"] == "flawed_tool_misuse"
    assert (optimal["total"], optimal["infra"], optimal["success"]) == (3, 1, 3)
    with (run / "aggregate.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == [*COLUMNS, "infra"]
    as_text = dict(zip(lines[0], lines[2], strict=True))
    assert as_text["full_success_rate"] == repr(2 / 3)
    assert as_text["avg_assisted_turns"] == ""
    assert as_text["last_updated"] == optimal["last_updated"].isoformat()
    names = {path.name for path in run.iterdir()}
    assert {"aggregate.parquet", "aggregate.csv"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert "2 rows in " in capsys.readouterr().out


def test_tables_of_all_or_selected_phases_are_printed(run, capsys):
    main([str(run)])
    said = capsys.readouterr().out
    assert said.startswith("SIMULATED: ")
    assert [line for line in said.splitlines() if line.startswith("## ")] == [
        "## Phase 5.1: the baseline, by model",
        "## Phase 5.3: flawed plans, by model and flaw",
        "## Cases by outcome, kind and phase",
    ]
    main([str(run), "--phase", "5.3"])
    said = capsys.readouterr().out
    assert said.count("## Phase ") == 1
    assert re.search(r"outcome/kind +\| 5\.3 \|", said)
    # Cases taken from a phase are shown even if the table of that phase is not requested.
    assert "[1] from phase 5.1" in said


def test_second_run_adds_missing_cases_and_is_not_changed(tmp_path, capsys):
    earlier = write_run(tmp_path / "earlier", some("phase51", solved=1, partial=1)).path
    later = write_run(tmp_path / "later", some("phase54", solved=1, rate=0.9)).path
    before = sorted(path.name for path in earlier.iterdir())
    assert main([str(later), str(earlier), str(earlier)]) == 0
    said = capsys.readouterr().out
    assert f"[1] from run {read_run(str(earlier)).run_id}" in said
    rows = pq.read_table(later / "aggregate.parquet").to_pylist()
    assert [(row["tool_success_rate"], row["total"]) for row in rows] == [(0.8, 2), (0.9, 1)]
    assert sorted(path.name for path in earlier.iterdir()) == before


def test_reused_run_adds_only_the_taken_cases(tmp_path, capsys):
    baseline = some("phase51", solved=2, partial=1)
    earlier = write_run(tmp_path / "earlier", [*baseline, *some("phase54", solved=2, rate=0.9)])
    asked = some("phase54", infra=1, rate=0.9)
    later = write_run(tmp_path / "later", asked, reused="earlier").path
    write_shared(later, [Shared("phase54", (), (baseline[0].case_id,))])
    assert main([str(later), "--reused", str(earlier.path)]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("## ")] == [
        "## Phase 5.4: reliability of the tools, by model and tool success rate",
        "## Cases by outcome, kind and phase",
    ]
    assert f"[1] from phase 5.1 of run {earlier.run_id}" in said
    rows = pq.read_table(later / "aggregate.parquet").to_pylist()
    counts = [(row["tool_success_rate"], row["total"], row["infra"]) for row in rows]
    assert counts == [(0.8, 1, 0), (0.9, 0, 1)]


def refused(capsys, *arguments):
    """The single line of a refusal."""
    assert main([str(each) for each in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("workflow_results: ")
    return line


def test_refusals_name_the_error_and_write_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no run found at nowhere or .ultrapar/nowhere" in refused(capsys, "nowhere")
    assert "latest" in refused(capsys, "latest")
    run = write_run(tmp_path / "run", mixed_cases()).path
    shutil.copytree(run, tmp_path / "unfinished")
    (tmp_path / "unfinished" / "results.parquet").unlink()
    assert "unfinished has no results: the run has not ended" in refused(capsys, "unfinished")
    shutil.copytree(run, tmp_path / "damaged")
    (tmp_path / "damaged" / "results.parquet").write_bytes(b"PAR1")
    assert "cannot read the results of damaged: " in refused(capsys, "damaged")
    assert "cannot read the results of damaged: " in refused(capsys, run, "damaged")
    assert "reused no run, not" in refused(capsys, run, "--reused", run)
    (tmp_path / "run" / "taken.json").write_text('[{"suite": 1}]')
    assert "is not a list of taken and reused cases" in refused(capsys, run)
    assert not list(tmp_path.glob("*/aggregate.*"))


def test_run_of_other_suites_is_refused(tmp_path, capsys):
    other = write_run(tmp_path / "run", [bench_case("mine", model="a")]).path
    line = refused(capsys, other)
    assert "its suites are mine; allowed are phase51, phase52" in line


def test_phase_without_its_parameters_is_refused(tmp_path, capsys):
    from pytest_ultrapar.analysis.compaction import compact

    run = run_of_seven(tmp_path / "run").path
    compact(run)
    line = refused(capsys, run)
    assert "test_x.py::test[0] has no parameter task_type, prompt_type, difficulty, tool" in line
