"""`ultrapar gate` on files whose figures cannot be true: refused, never judged."""

from __future__ import annotations

import copy
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from tests.unit.finished_run import NOW, without_digests
from tests.unit.two_runs import run_of

PART = {
    "suite": None,
    "model": None,
    "n": 24,
    "makespan_s": 10.0,
    "serial_s": 60.0,
    "speedup": 6.0,
    "speedup_interval": [5.3, 7.3],
    "basis": "full",
}
RUN = {"run_id": "r", "mode": "ultra", "simulated": False, "parts": [PART]}


def gate(capsys, path, rule):
    code = cli.main(("gate", str(path), "--rule", rule))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def judged(tmp_path, capsys):
    def call(runs):
        path = tmp_path / "benchmark.json"
        path.write_text(json.dumps({"ultrapar": {"runs": runs}}))
        return gate(capsys, path, "speedup>=3")

    return call


def test_figures_that_can_be_true_are_judged(judged):
    code, out, _ = judged([RUN])
    assert code == 0
    assert "pass" in out


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"speedup": -5.0}, "speedup"),
        ({"speedup": 0.0}, "speedup"),
        ({"speedup": 12.0}, "speedup"),
        ({"speedup_interval": [7.0, 5.0]}, "speedup_interval"),
        ({"speedup_interval": [6.5, 7.0]}, "speedup_interval"),
        ({"speedup_interval": [-1.0, 20.0]}, "speedup_interval"),
        ({"n": -1}, "n"),
        ({"n": 0}, "n"),
        ({"serial_s": 0.0}, "serial_s"),
        ({"serial_s": -60.0}, "serial_s"),
        ({"makespan_s": 0.0}, "makespan_s"),
        ({"makespan_s": -10.0}, "makespan_s"),
    ],
)
def test_impossible_figure_is_refused_by_file_and_field(judged, changed, field):
    code, out, err = judged([{**RUN, "parts": [PART | changed]}])
    assert (code, out) == (4, "")
    assert "benchmark.json" in err
    assert "runs[0].parts[" in err.replace("...", "0")
    assert field in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("runs", "field"),
    [
        ([RUN, {**RUN, "run_id": "other"}], "ultrapar.runs[1].mode"),
        ([{**RUN, "parts": [PART, PART]}], "ultrapar.runs[0].parts[1]"),
        ([{**RUN, "mode": "warp"}], ".mode"),
    ],
)
def test_what_stands_there_twice_or_is_unknown_is_refused(judged, runs, field):
    code, out, err = judged(copy.deepcopy(runs))
    assert (code, out) == (4, "")
    assert field in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("value", [math.nan, -2.0, math.inf])
@pytest.mark.parametrize("column", ["duration_s", "service_s"])
def test_impossible_time_of_a_case_is_refused(tmp_path, capsys, column, value):
    path = tmp_path / "run"
    run_of(path, "ultra", [(1.0 * at, at + 2.0) for at in range(12)], ended_at=NOW)
    file = path / "results.parquet"
    table = pq.read_table(file)
    values = [value, *table[column].to_pylist()[1:]]
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, table.field(at), pa.array(values, pa.float64())), file)
    without_digests(path)
    code, out, err = gate(capsys, path, "latency.p95<=10s")
    assert (code, out) == (4, "")
    assert f"{column} of case " in err
    assert str(path) in err
    assert err.count("\n") == 1
