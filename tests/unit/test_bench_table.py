"""The one table over the modes of a bench."""

from __future__ import annotations

import json
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.bench.benching import finish, read_ended
from pytest_ultrapar.errors import ResultsError
from tests.unit.finished_run import NOW
from tests.unit.two_runs import N_CASES, run_of, serial_run, ultra_run


def finish_all(folder, modes):
    return finish(folder, [read_ended(mode, folder / mode, 0) for mode in modes], [])


@pytest.mark.parametrize("storage", ["parquet", "json"])
def test_table_has_the_rows_of_all_modes_as_the_runs_have_them(tmp_path, storage, capsys):
    serial_run(tmp_path / "serial", outcomes={0: "unsolved"}, storage_format=storage)
    ultra_run(tmp_path / "ultra", outcomes={7: "infra"}, storage_format=storage)
    assert finish_all(tmp_path, ("serial", "ultra")) == 0
    assert "results.parquet" in capsys.readouterr().out
    path = tmp_path / "results.parquet"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.schema.metadata[b"ultrapar.simulated"] == b"true"
    rows = table.to_pylist()
    assert [row["mode"] for row in rows] == ["serial"] * N_CASES + ["ultra"] * N_CASES
    assert len({(row["mode"], row["case_id"]) for row in rows}) == 2 * N_CASES
    if storage == "parquet":
        apart = [pq.read_table(tmp_path / mode / "results.parquet") for mode in ("serial", "ultra")]
        assert rows == [row for one in apart for row in one.to_pylist()]
        assert table.schema.equals(apart[0].schema)
    else:
        lines = [
            json.loads(line)
            for mode in ("serial", "ultra")
            for line in (tmp_path / mode / "results.jsonl").read_text().splitlines()
        ]
        for row, line in zip(rows, lines, strict=True):
            found = {name: row[name] for name in line}
            assert found.pop("started_at").isoformat() == line.pop("started_at").replace(
                "Z", "+00:00"
            )
            assert found.pop("ended_at").isoformat() == line.pop("ended_at").replace("Z", "+00:00")
            assert found == line
        assert str(table.schema.field("started_at").type) == "timestamp[us, tz=UTC]"
        assert str(table.schema.field("param.level").type) == "int64"


def test_score_that_only_one_mode_has_is_empty_in_the_others(tmp_path):
    spans = [(float(n), n + 1.0) for n in range(N_CASES)]
    run_of(tmp_path / "serial", "serial", spans, scores={"workflow": 0.5}, ended_at=NOW)
    run_of(tmp_path / "ultra", "ultra", spans, ended_at=NOW)
    finish_all(tmp_path, ("serial", "ultra"))
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["score.workflow"] for row in rows] == [0.5] * N_CASES + [None] * N_CASES


def test_tables_that_do_not_fit_together_are_named(tmp_path):
    serial_run(tmp_path / "serial")
    ultra_run(tmp_path / "ultra")
    path = tmp_path / "ultra" / "results.parquet"
    table = pq.read_table(path)
    other = pa.array([{"x": 1}] * len(table))
    at = table.schema.get_field_index("suite")
    pq.write_table(table.set_column(at, "suite", other), path)
    with pytest.raises(ResultsError, match=r"cannot put the results of .*ultra together: "):
        finish_all(tmp_path, ("serial", "ultra"))


@pytest.mark.parametrize(
    "damage",
    [
        {"n_attempts": [1]},
        {"ended_at": 7},
        {"service_s": {}},
        None,
        "gone",
    ],
)
def test_damaged_lines_of_a_mode_are_named(tmp_path, damage):
    serial_run(tmp_path / "serial", storage_format="json")
    ultra_run(tmp_path / "ultra", storage_format="json")
    path = tmp_path / "ultra" / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if damage is None:
        rows[3] = None
    elif damage == "gone":
        del rows[3]["ended_at"]
    else:
        rows[3] |= damage
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(ResultsError, match=r"cannot read the results of .*ultra: ."):
        finish_all(tmp_path, ("serial", "ultra"))
