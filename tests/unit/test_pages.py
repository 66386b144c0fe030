"""What the page of a run shows, computed anew from the run's tables."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from importlib.resources import files

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.cli import main
from pytest_ultrapar.pages import transcripts
from pytest_ultrapar.pages.figures import QUANTILES, quantiles, read_figures
from pytest_ultrapar.pages.frame import embedded
from pytest_ultrapar.pages.page import render
from pytest_ultrapar.store.manifest import read_manifest
from tests.unit.finished_run import (
    attempt,
    case,
    episode,
    grade,
    make_run,
    run_of_seven,
    write_journal,
)

SUMS = {
    "vega.min.js": "8f6a3587cf8d4f42c7e08120e3eb05d067e746d554e39d2dcf52acc0bd5ba28f",
    "vega-lite.min.js": "843d20762ca6e52ff5ceab7a3296219272a9c0b5364402d6814f3c7738f4be5e",
    "vega-interpreter.js": "a5c4983316918082d2ffdcc677d2e6d1ac2f95033d88998712b337c81b11af97",
}


@pytest.fixture
def run(tmp_path):
    found = run_of_seven(tmp_path / "run")
    compact(found.path)
    return found.path


def table(run, name):
    return pq.read_table(run / f"{name}.parquet").to_pylist()


def test_figures_are_those_of_the_tables(run):
    figures = read_figures(run, read_manifest(run))
    rows = {row["case_id"]: row for row in table(run, "results")}
    assert figures.cases[0].case_id == "case4", "errors come first"
    for one in figures.cases:
        row = rows[one.case_id]
        assert (one.outcome, one.model, one.n_attempts) == (
            row["outcome"], row["model"], row["n_attempts"],
        )  # fmt: skip
        assert one.duration_s == row["duration_s"]
        assert one.tokens == (row["tokens_in"] or 0) + (row["tokens_out"] or 0)
    graded = [row for row in rows.values() if row["outcome"] in {"solved", "partial", "unsolved"}]
    (flaw,) = [one for one in figures.dimensions if one.name == "flaw"]
    for key, n in Counter((row["model"], row["param.flaw"]) for row in graded).items():
        square = flaw.square(*key)
        solved = [row for row in graded if (row["model"], row["param.flaw"]) == key]
        assert square.n == n
        assert square.n_solved == sum(row["outcome"] == "solved" for row in solved)
        assert 0 <= square.low <= square.n_solved / n <= square.high <= 1
    assert flaw.square("m2", "drop").n == 0
    sent = [row for row in table(run, "attempts") if row["t_send_s"] is not None]
    (lane,) = figures.lanes
    assert lane.n == len(sent)
    in_flight_s = sum(lane.in_flight) * lane.slice_s
    assert in_flight_s == pytest.approx(
        sum(row["t_end_s"] - row["t_send_s"] for row in sent), rel=0.01
    )
    assert len(lane.refused_at_s) == sum(row["outcome"] == "rate" for row in sent)
    assert figures.kinds["error/ValueError"] == {"azure/dep0/key0": 1}


def test_quantiles_are_values_and_reach_from_the_smallest_to_the_largest():
    found = quantiles([3.0, 1.0, 2.0])
    assert len(found) == QUANTILES + 1
    assert (found[0], found[QUANTILES // 2], found[-1]) == (1.0, 2.0, 3.0)


def test_transcripts_are_packed_as_far_as_there_is_room(run, monkeypatch):
    ids = [f"case{n}" for n in range(6)]
    monkeypatch.setattr(transcripts, "CASES_OF_A_PART", 2)
    packed = transcripts.pack(run, ids)
    assert packed.n_left_out == 0
    assert packed.of_case == {one: n // 2 for n, one in enumerate(ids)}
    part = json.loads(gzip.decompress(base64.b64decode(packed.parts[0])))
    assert [one["content"] for one in part["case0"]["messages"]] == ["q", "a"]
    assert [one[3] for one in part["case1"]["attempts"]] == ["rate", "ok"]
    monkeypatch.setattr(transcripts, "MOST_BYTES", len(packed.parts[0]))
    assert transcripts.pack(run, ids).n_left_out == 4


def test_nothing_ends_the_element_that_holds_the_data():
    said = {"a": "</script><!--", "b": "\u2028"}
    assert "<" not in embedded(said)
    assert json.loads(embedded(said)) == said


def test_page_runs_its_own_scripts_alone(run):
    page = render(run)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 5
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert digest in policy.replace("&#43;", "+")


def test_libraries_are_those_that_were_taken():
    vendor = files("pytest_ultrapar.pages").joinpath("vendor")
    for name, digest in SUMS.items():
        assert hashlib.sha256(vendor.joinpath(name).read_bytes()).hexdigest() == digest
        assert vendor.joinpath(f"LICENSE-{name.split('.')[0]}").is_file()


def test_command_writes_the_page_where_it_is_wanted(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()
    assert main(["report", str(run), "--out", str(tmp_path / "a.html")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "a.html")
    assert main(["report", str(run), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### Run ")
    assert main(["report", str(run), "--markdown", "--out", str(tmp_path / "a.md")]) == 0
    assert (tmp_path / "a.md").read_text().startswith("### Run ")


@pytest.mark.parametrize("how", ["no run", "no folder", "no tables", "newer"])
def test_what_cannot_be_made_is_said_in_one_sentence(run, tmp_path, capsys, how):
    out = tmp_path / "there" / "a.html" if how == "no folder" else tmp_path / "a.html"
    name = str(tmp_path / "nowhere") if how == "no run" else str(run)
    if how == "no tables":
        (run / "summary.json").unlink()
    if how == "newer":
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"schema": 99}))
    assert main(["report", name, "--out", str(out)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ultrapar report: error: ")
    assert not out.exists()


def test_page_that_was_there_stays_where_the_new_one_cannot_be_written(run, tmp_path, capsys):
    folder = tmp_path / "folder"
    (folder / "a.html").mkdir(parents=True)
    assert main(["report", str(run), "--out", str(folder / "a.html")]) == 4
    assert [path.name for path in folder.iterdir()] == ["a.html"]


@pytest.mark.parametrize("outcome", ["infra", "solved"])
def test_runs_of_one_case_and_of_none_that_was_graded_have_a_page(tmp_path, outcome):
    run = make_run(tmp_path / "one", [case(0)])
    kind = "timeout" if outcome == "infra" else None
    ending = "infra" if outcome == "infra" else "returned"
    failed = [attempt(1.0, 2.0, outcome="timeout")] if outcome == "infra" else [attempt(1.0, 2.0)]
    ended = episode(0, 1.0, 2.0, ending, kind=kind, attempts=failed)
    write_journal(run, "gw0", ended, grade(0, outcome, kind=kind))
    compact(run.path)
    assert "Run " in render(run.path)


def test_run_without_any_case_that_ran_has_a_page(tmp_path):
    run = make_run(tmp_path / "none", [case(0)])
    write_journal(run, "gw0")
    compact(run.path)
    assert "0 graded" in render(run.path)
