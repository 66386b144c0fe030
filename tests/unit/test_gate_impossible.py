"""`ultrapar gate` on files whose figures cannot be true: refused, never judged."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from tests.unit.finished_run import NOW, without_digests
from tests.unit.two_runs import run_of


def gate(capsys, path, rule):
    code = cli.main(("gate", str(path), "--rule", rule))
    said = capsys.readouterr()
    return code, said.out, said.err


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
