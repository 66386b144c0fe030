"""Runs of an earlier version of this package, stored in `tests/kept_runs`, can still be used.

`finished` has Parquet tables, a serial sample and failed requests; `finished-json` has JSON lines
and estimated limits; `interrupted` was killed with SIGKILL while cases ran.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.analysis.compaction import compact
from tests.journals import scan_journal

KEPT = Path(__file__).parents[1] / "kept_runs"
TABLES = ("results", "attempts", "transcripts", "limits")


@pytest.fixture
def project(pytester, monkeypatch):
    """The project of the stored runs, with its runs."""
    root = pytester.path
    for name in ("finished", "finished-json", "interrupted"):
        shutil.copytree(KEPT / name, root / name)
    root.joinpath("words").mkdir()
    shutil.copy(KEPT / "suite.py", root / "words" / "test_words.py")
    shutil.copy(KEPT / "pool.toml", root / "pool.toml")
    root.joinpath("pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("ULTRAPAR_LOCK_DIR", str(root.with_name(f"{root.name}-locks")))
    return pytester


def resume(project, name, *options):
    return project.runpytest_inprocess(
        "-pno:cacheprovider", "-n0", "--ultrapar-pool=pool.toml", f"--ultrapar-resume={name}",
        *options, "words",
    )  # fmt: skip


def rows(directory, table):
    path = directory / f"{table}.parquet"
    if path.exists():
        return pq.read_table(path).to_pylist()
    lines = (directory / f"{table}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def columns(path):
    return list(json.loads(path.read_text().partition("\n")[0]))


def n_ended(directory):
    records = [record for _, record in scan_journal(directory / "journal")]
    return sum(type(record).__name__ == "EpisodeEnded" for record in records)


@pytest.mark.slow
def test_interrupted_run_is_resumed_and_pays_for_no_finished_case_again(project):
    run = project.path / "interrupted"
    n_before = n_ended(run)
    assert n_before == 12
    done = resume(project, "interrupted")
    assert done.ret == 0, done.stdout.str()
    assert n_ended(run) == 20
    outcomes = [row["outcome"] for row in rows(run, "results")]
    assert (outcomes.count("solved"), outcomes.count("skipped")) == (20, 4)
    # Two for each case: the killed run had sent requests for which there is no record.
    assert len(rows(run, "attempts")) == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("finished", []),
        ("finished-json", ["--ultrapar-rate-mode=adaptive", "--ultrapar-storage=json"]),
    ],
)
def test_resuming_a_finished_run_sends_nothing(project, name, options):
    run = project.path / name
    before = {table: rows(run, table) for table in ("results", "transcripts")}
    done = resume(project, name, *options)
    assert done.ret == 0, done.stdout.str()
    for table, content in before.items():
        found = rows(run, table)
        assert [row["case_id"] for row in found] == [row["case_id"] for row in content]
        assert [row.get("outcome") for row in found] == [row.get("outcome") for row in content]


def test_finished_runs_are_compared_and_gated(project, capsys):
    finished, other = str(project.path / "finished"), str(project.path / "finished-json")
    assert cli.main(("compare", finished, other)) == 0
    said = capsys.readouterr().out
    assert "solved" in said
    rules = ("--rule", "solved_rate>=0.9", "--rule", "coverage>=0.9", "--rule", "changed<=0.2")
    assert cli.main(("gate", finished, "--baseline", other, *rules)) == 0
    assert cli.main(("gate", finished, "--rule", "solved_rate.point>=0.99")) == 1


@pytest.mark.parametrize("name", ["finished", "finished-json"])
def test_finished_runs_are_shown_by_test(project, name, capsys):
    run = project.path / name
    assert cli.main(("report", str(run))) == 4
    assert "they are too old and have no column 'role'; " in capsys.readouterr().err
    compact(run)
    assert cli.main(("report", str(run), "--out", str(project.path / "page.html"))) == 0
    assert ">pear<" in (project.path / "page.html").read_text(), "words are a dimension"


def assert_near(now, before):
    """Compare fractions within a thousandth, the rest exactly; later versions may add figures."""
    if isinstance(before, dict):
        assert now.keys() >= before.keys()
        for name in before:
            assert_near(now[name], before[name])
    elif isinstance(before, list):
        for one, other in zip(now, before, strict=True):
            assert_near(one, other)
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=0.001, abs=0.001)
    else:
        assert now == before


@pytest.mark.parametrize("name", ["finished", "finished-json"])
def test_compaction_makes_the_same_tables(project, name):
    run = project.path / name
    old = {table: rows(run, table) for table in TABLES}
    schemas = {path.name: pq.read_schema(path) for path in run.glob("*.parquet")}
    orders = {path.name: columns(path) for path in run.glob("*s.jsonl")}
    summary = json.loads((run / "summary.json").read_text())
    for path in [*run.glob("*.parquet"), *(run / f"{table}.jsonl" for table in TABLES)]:
        path.unlink(missing_ok=True)
    compact(run)
    # The earlier version did not count the wait for an episode's first lease.
    for before, now in zip(old["results"], rows(run, "results"), strict=True):
        assert now["queue_wait_s"] >= before["queue_wait_s"]
        before["queue_wait_s"] = now["queue_wait_s"]
    of_case = {row["case_id"]: (row["model"], row["suite"]) for row in old["results"]}
    for table, content in old.items():
        # Later columns are null for old data; no case had a role.
        found = rows(run, table)
        for row in found if table == "attempts" else ():
            # The plan had these columns then, too.
            assert (row.pop("model"), row.pop("suite")) == of_case[row["case_id"]]
        for row in found if table == "results" else ():
            # Derived from the node id; the earlier version did not store marks.
            words = f"{row['model']}-{row.pop('param_id')}-r{row['repeat']}"
            assert f"{row.pop('file')}::{row.pop('test_name')}[{words}]" == row["nodeid"]
            # The journal always contained the values that episodes returned.
            value = row.pop("value")
            assert (value is None) == (row["outcome"] == "skipped" or row["kind"] is not None)
            assert value is None or json.loads(value).keys() == {"word", "number"}
        added = found[0].keys() - content[0].keys()
        assert {row.pop(name) for row in found for name in added} <= {None, ""}
        assert found == content
    for file, schema in schemas.items():
        found = pq.read_schema(run / file)
        first = pa.schema(list(found)[: len(schema)], found.metadata)
        assert first.equals(schema, check_metadata=True)
    for file, order in orders.items():
        assert columns(run / file)[: len(order)] == order
    found = json.loads((run / "summary.json").read_text())
    # Resampled from other random numbers than before.
    old_interval = summary["statistics"].pop("speedup_interval")
    if summary["statistics"]["basis"] == "estimated":
        # The earlier version did not say how much lower the bound may be.
        summary["statistics"]["basis"], old_interval[0] = "at_most", 0
    assert found["statistics"].pop("speedup_interval") == pytest.approx(old_interval, rel=0.03)
    # The bound was found within 0.5 %, and Student's t to the ninth digit.
    assert_near(found, summary)


def test_compaction_makes_tables_of_the_interrupted_run(project):
    run = project.path / "interrupted"
    summary = compact(run)
    assert summary.statistics.n_final == len(rows(run, "results"))
    assert len({row["case_id"] for row in rows(run, "attempts")}) == 12
