"""The tables of a run that contains every outcome of a case."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis import compaction, run_summary
from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import Case, EpisodeStarted
from pytest_ultrapar.store import parquet, table_set
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.tables import columns_of
from tests.unit.finished_run import (
    NOW,
    T0_US,
    attempt,
    case,
    episode,
    grade,
    make_run,
    rows_by_case,
    run_of_one,
    write_journal,
)


def test_compact_results_have_one_row_per_graded_case_in_planned_order(run):
    compact(run.path)
    table = pq.read_table(run.path / "results.parquet")
    assert table["case_id"].to_pylist() == ["case0", "case1", "case2", "case3", "case4", "case5"]
    assert table["outcome"].to_pylist() == [
        "solved",
        "partial",
        "solved",
        "unsolved",
        "error",
        "skipped",
    ]
    assert table["kind"].to_pylist() == [None, None, None, "context_length", "ValueError", None]


def test_compact_result_row_has_the_measured_values(run):
    compact(run.path)
    row = rows_by_case(run)["case1"]
    assert row["run_id"] == run.run_id
    assert (row["param.flaw"], row["param.mixed"], row["param.wide"]) == ("drop", "x", str(2**70))
    assert (row["score.workflow"], row["score.extra"]) == (0.25, 1.0)
    assert (row["n_attempts"], row["n_turns"]) == (2, 1)
    assert (row["tokens_in"], row["rate_wait_s"], row["backoff_s"]) == (None, 0.25, 0.5)
    # 4 s minus 0.5 s of back-off and 0.5 s for the refused request.
    assert (row["duration_s"], row["service_s"]) == (4.0, 3.0)
    assert row["started_at"] == datetime(2030, 1, 2, 3, 4, 6, tzinfo=UTC)
    assert (row["provider"], row["instance"], row["key"]) == ("azure", "dep0", "key0")
    assert row["seed"] == 11
    marked = rows_by_case(run)["case5"]
    assert (marked["duration_s"], marked["n_attempts"], marked["provider"]) == (0.0, 0, "")
    assert marked["started_at"] == marked["ended_at"]
    assert rows_by_case(run)["case0"]["param.mixed"] == "1"


def test_wait_for_the_first_seat_counts_like_later_waits(tmp_path):
    attempts = [attempt(1.0, 2.0, seat_wait_s=0.75), attempt(3.0, 4.0, seat_wait_s=0.5)]
    run = run_of_one(tmp_path / "out", episode(0, 1.0, 4.0, attempts=attempts))
    compact(run.path)
    assert rows_by_case(run)["case0"]["queue_wait_s"] == 1.25


def test_compact_attempts_has_every_request(run):
    compact(run.path)
    table = pq.read_table(run.path / "attempts.parquet")
    assert table["case_id"].to_pylist() == [f"case{n}" for n in (0, 1, 1, 2, 2, 2, 3, 4)]
    refused = table.slice(1, 1).to_pylist()[0]
    assert (refused["status"], refused["outcome"], refused["retry_after_s"]) == (429, "rate", 0.5)
    assert table.schema.field("t_first_byte_s").nullable
    assert not table.schema.field("t_end_s").nullable
    assert set(table["run_id"].to_pylist()) == {run.run_id}


def test_compact_transcripts_has_the_graded_episodes(run):
    compact(run.path)
    table = pq.read_table(run.path / "transcripts.parquet")
    assert table["case_id"].to_pylist() == [f"case{i}" for i in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)]
    (row,) = table.slice(1, 1).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "run_id": run.run_id,
        "case_id": "case0",
        "turn": 0,
        "role": "assistant",
        "content": "a",
        "tool_calls": '[{"n":1}]',
        "pool_role": "",
    }


def test_compact_summary_distinguishes_finished_and_interrupted_ungraded_episodes(tmp_path):
    run = make_run(tmp_path / "out", [case(i) for i in range(4)])
    records = [episode(0, 1.0, 2.0), grade(0), episode(1, 1.0, 2.0)]
    records += [episode(2, 1.0, 2.0, ending="interrupted")]
    write_journal(run, "gw0", *records)
    summary = compact(run.path)
    assert (summary.n_ungraded, summary.n_interrupted, summary.n_never_ran) == (1, 1, 1)
    assert summary.n_without_grade == 3
    assert summary.never_ran == [case(3).nodeid]


def test_compact_summary_counts_present_and_missing_cases(run):
    summary = compact(run.path)
    statistics = summary.statistics
    assert statistics.counts == {
        "solved": 2,
        "partial": 1,
        "unsolved": 1,
        "scored": 0,
        "infra": 0,
        "error": 1,
        "skipped": 1,
    }
    assert (statistics.n_planned, statistics.n_final, statistics.n_graded) == (7, 6, 4)
    assert statistics.coverage == pytest.approx(4 / 6)
    assert summary.never_ran == ["s/phase53/test_x.py::test[6]"]
    assert summary.n_never_ran == 1
    assert summary.kinds == {"unsolved/context_length": 1, "error/ValueError": 1}
    assert [note.nodeid for note in summary.notes] == ["s/phase53/test_x.py::test[4]"]
    assert [(cell.names, cell.n, cell.n_graded) for cell in summary.cells] == [
        (("m1", "drop"), 1, 1),
        (("m1", "order"), 4, 2),
        (("m2", "order"), 1, 1),
    ]
    assert statistics.scores["workflow"].mean == 0.5
    assert summary.files == [
        "results.parquet",
        "attempts.parquet",
        "transcripts.parquet",
        "benchmark.json",
        "summary.json",
    ]


def test_second_compact_makes_the_same_tables(run):
    first = compact(run.path)
    before = {name: (run.path / name).read_bytes() for name in first.files[:3]}
    second = compact(run.path)
    assert second == first
    for name, content in before.items():
        assert (run.path / name).read_bytes() == content
    assert {path.stat().st_mode & 0o777 for path in run.path.glob("*.parquet")} == {0o600}


def test_compact_measures_only_episodes_that_began_after_the_resume(run):
    manifest = read_manifest(run.path)
    resumed = datetime.fromtimestamp(NOW.timestamp() + 4.5, UTC)
    write_manifest(run.path, msgspec.structs.replace(manifest, measured_from=resumed))
    summary = compact(run.path)
    assert summary.statistics.n_timed == 1
    assert summary.statistics.makespan_s == pytest.approx(1.0)
    assert summary.statistics.n_graded == 4


def test_compact_json_has_the_same_rows(run):
    compact(run.path)
    expected = pq.read_table(run.path / "results.parquet").to_pylist()
    manifest = read_manifest(run.path)
    write_manifest(run.path, msgspec.structs.replace(manifest, storage_format="json"))
    summary = compact(run.path)
    assert summary.files[:3] == ["results.jsonl", "attempts.jsonl", "transcripts.jsonl"]
    rows = [json.loads(line) for line in (run.path / "results.jsonl").read_text().splitlines()]
    assert rows[1].pop("started_at") == "2030-01-02T03:04:06Z"
    assert rows[1].pop("ended_at") == "2030-01-02T03:04:10Z"
    for row in expected:
        for name in ("started_at", "ended_at"):
            row.pop(name)
    assert rows[1] == expected[1]
    assert len(rows) == len(expected)


@pytest.mark.parametrize("step", ["finish", "publish 1", "publish 3", "benchmark"])
def test_compact_interrupted_between_any_two_steps_loses_nothing(run, monkeypatch, step):
    complete = compact(run.path)
    tables = {name: (run.path / name).read_bytes() for name in complete.files[:3]}
    for name in complete.files[:2]:
        (run.path / name).unlink()
    published = []

    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    real = parquet.publish

    def publish(temporary, path):
        if step == f"publish {len(published) + 1}":
            raise KeyboardInterrupt
        published.append(path)
        real(temporary, path)

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "publish", publish)
        if step == "finish":
            patch.setattr(parquet, "verify", stop)
        if step == "benchmark":
            patch.setattr(compaction, "write_whole", stop)
        with pytest.raises(KeyboardInterrupt):
            compact(run.path)
    for path in run.path.glob("*.parquet"):
        assert path.read_bytes() == tables[path.name]
    assert compact(run.path) == complete
    assert not list(run.path.glob(".*.tmp"))
    assert len(segments(run.journal)) == 2


def test_second_compaction_waits_for_the_summary_of_the_first(run, monkeypatch):
    """A second compaction would remove the temporary file of the summary."""
    held = {}

    def write(path, content):
        with (run.path / compaction.COMPACT_LOCK_NAME).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held[path.name] = True
        real(path, content)

    real = compaction.write_whole
    for module in (compaction, run_summary):
        monkeypatch.setattr(module, "write_whole", write)
    compact(run.path)
    assert held == {"benchmark.json": True, "summary.json": True}


def test_compact_of_a_run_without_a_grade_writes_empty_tables(tmp_path):
    run = make_run(tmp_path / "out", [case(0)])
    write_journal(run, "gw0", EpisodeStarted("case0", "gw0", T0_US))
    summary = compact(run.path)
    assert summary.statistics.makespan_s is None
    assert summary.statistics.coverage == 0.0
    assert summary.files == [
        "results.parquet",
        "attempts.parquet",
        "transcripts.parquet",
        "summary.json",
    ]
    assert pq.read_table(run.path / "results.parquet").num_rows == 0
    assert not (run.path / "benchmark.json").exists()


def test_parquet_flipped_byte_is_found_by_the_page_checksum(tmp_path):
    columns = columns_of(Case, "case_id", "seed")
    rows = parquet.Rows(columns, Case, simulated=False)
    schema = rows.schema
    table = parquet.ParquetTable(tmp_path, "results", schema)
    for i in range(100):
        rows.add(case(i))
    table.write(rows.take(range(100)))
    table.finish()
    table.publish()
    parquet.verify(table.path, schema, 100)
    with pytest.raises(ResultsError, match="has 100 rows, but 99 were written"):
        parquet.verify(table.path, schema, 99)
    with pytest.raises(ResultsError, match="does not have the schema"):
        parquet.verify(table.path, parquet.arrow_schema(columns, simulated=True), 100)
    data = bytearray(table.path.read_bytes())
    offset = pq.ParquetFile(table.path).metadata.row_group(0).column(0).data_page_offset
    data[offset + 60] ^= 0x10
    table.path.write_bytes(data)
    with pytest.raises(ResultsError, match="cannot be read back"):
        parquet.verify(table.path, schema, 100)


def test_session_without_cases_keeps_the_earlier_measurements(run):
    first = compact(run.path)
    benchmark = (run.path / "benchmark.json").read_bytes()
    manifest = read_manifest(run.path)
    assert manifest.bound is not None
    later = datetime.fromtimestamp(NOW.timestamp() + 1000, UTC)
    write_manifest(run.path, msgspec.structs.replace(manifest, resumed=True, measured_from=later))
    again = compact(run.path)
    assert again.statistics == first.statistics
    assert (again.bound_s, again.efficiency) == (first.bound_s, first.efficiency)
    assert (again.attribution, again.audit) == (first.attribution, first.audit)
    assert (first.session, again.session) == ("", " (earlier session)")
    assert (run.path / "benchmark.json").read_bytes() == benchmark
    assert read_manifest(run.path).bound == manifest.bound


def test_compact_counts_graded_cases_without_a_request_through_llm(tmp_path):
    run = make_run(tmp_path / "out", [case(n) for n in range(6)])
    write_journal(
        run,
        "gw0",
        episode(0, 1.0, 2.0),
        grade(0),
        episode(1, 1.0, 2.0, attempts=[]),
        grade(1),
        episode(2, 1.0, 2.0, attempts=[]),
        grade(2, "unsolved", test="failed"),
        # These cases could not get an answer.
        episode(3, 1.0, 2.0, "infra", kind="no_lane", attempts=[]),
        grade(3, "infra", kind="no_lane", test="skipped"),
        grade(4, "skipped", test="skipped"),
        episode(5, 1.0, 2.0, "error", kind="ValueError", attempts=[]),
        grade(5, "error", kind="ValueError", test="error"),
    )
    assert compact(run.path).n_without_request == 2


def test_compact_limits_memory_with_row_groups(run, monkeypatch):
    monkeypatch.setattr(table_set, "CASES_PER_GROUP", 2)
    compact(run.path)
    assert pq.ParquetFile(run.path / "results.parquet").num_row_groups == 3
    monkeypatch.setattr(table_set, "CASES_PER_GROUP", 100)
    monkeypatch.setattr(table_set, "TEXT_PER_GROUP", 36)
    compact(run.path)
    assert pq.ParquetFile(run.path / "transcripts.parquet").num_row_groups == 3


def test_compact_cleans_up_after_a_killed_one(run):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    (run.path / ".results.parquet.1.tmp").write_bytes(b"half")
    (run.path / f".manifest.json.{gone.pid}.tmp").write_bytes(b"half")
    sessions_own = run.path / f".assignment.json.{os.getpid()}.tmp"
    sessions_own.write_bytes(b"half")
    compact(run.path)
    assert list(run.path.glob(".*.tmp")) == [sessions_own]
