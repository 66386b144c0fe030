"""The figures of an HTML report, compared with figures computed from the run's tables."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import os
import re
import shutil
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from pytest_ultrapar.analysis.attribution import Attribution, Parts
from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.analysis.statistics import latency_of
from pytest_ultrapar.cli import main
from pytest_ultrapar.pool.model import Lane, LaneId, Limit
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.report.pages import snapshot, transcripts
from pytest_ultrapar.report.pages.figures import read_figures
from pytest_ultrapar.report.pages.page import render
from pytest_ultrapar.report.pages.page_template import embedded
from pytest_ultrapar.report.pages.plots import (
    costs_plot,
    lanes_plot,
    limits_plot,
    passes_plot,
    time_plot,
)
from pytest_ultrapar.report.summary import waits_line
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory
from tests.unit.finished_run import (
    attempt,
    case,
    episode,
    grade,
    make_run,
    run_of_repetitions,
    run_of_seven,
    write_journal,
)

GRADED = {"solved", "partial", "unsolved"}


@pytest.fixture
def run(tmp_path):
    found = run_of_seven(tmp_path / "run")
    compact(found.path)
    return found.path


def table(run, name):
    return pq.read_table(run / f"{name}.parquet").to_pylist()


def row(columns, number):
    """The values of one row. A column is a list, or texts and each row's index into them."""
    return {
        name: column["texts"][column["at"][number]] if isinstance(column, dict) else column[number]
        for name, column in columns.items()
        if not isinstance(column, dict) or column["at"][number] is not None
    }


def lines(figures):
    """The cases of a page, in the order of the page."""
    said = to_builtins(figures)
    return [
        SimpleNamespace(
            **{"kind": "", "error": "", **row(said["cases"], number)},
            params=row(said["params"], number),
            parts={name: s for name, s in row(said["parts"], number).items() if s},
        )
        for number in range(len(figures.cases["case_id"]))
    ]


def unpacked(text):
    """The cases in one part of a page's data, by id."""
    said = json.loads(gzip.decompress(base64.b64decode(text)))

    def own(rows, number):
        return [row(rows["columns"], at) for at, of in enumerate(rows["case"]) if of == number]

    return {
        case_id: {name: own(said[name], number) for name in ("messages", "attempts", "scores")}
        for number, case_id in enumerate(said["cases"])
    }


def test_figures_match_the_tables(run):
    figures = read_figures(run, read_manifest(run))
    rows = {row["case_id"]: row for row in table(run, "results")}
    assert figures.cases["case_id"][0] == "case4", "errors come first"
    for one in lines(figures):
        row = rows[one.case_id]
        assert (one.outcome, figures.models[one.model], one.n_attempts) == (
            row["outcome"], row["model"], row["n_attempts"],
        )  # fmt: skip
        assert one.duration_s == row["duration_s"]
        assert sum(one.parts.values()) == pytest.approx(one.duration_s, abs=0.001)
        assert one.tokens == (row["tokens_in"] or 0) + (row["tokens_out"] or 0)
    graded = [row for row in rows.values() if row["outcome"] in {"solved", "partial", "unsolved"}]
    (flaw,) = [one for one in figures.dimensions if one.name == "flaw"]
    for key, n in Counter((row["model"], row["param.flaw"]) for row in graded).items():
        square = flaw.squares[figures.models.index(key[0])][flaw.values.index(key[1])]
        solved = [row for row in graded if (row["model"], row["param.flaw"]) == key]
        assert square.n == n
        assert square.n_solved == sum(row["outcome"] == "solved" for row in solved)
        assert square.n_partial == sum(row["outcome"] == "partial" for row in solved)
        assert 0 <= square.low <= square.n_solved / n <= square.high <= 1
    sent = [row for row in table(run, "attempts") if row["t_send_s"] is not None]
    (lane,) = figures.lanes
    assert lane.n == len(sent)
    in_flight_s = sum(lane.in_flight) * lane.slice_s
    assert in_flight_s == pytest.approx(
        sum(row["t_end_s"] - row["t_send_s"] for row in sent), rel=0.01
    )
    assert len(lane.refused_at_s) == sum(row["outcome"] == "rate" for row in sent)


@pytest.mark.parametrize("make", [run_of_seven, run_of_repetitions])
def test_tables_of_json_lines_make_the_same_page(tmp_path, make):
    run, other = make(tmp_path / "run").path, tmp_path / "other"
    shutil.copytree(run, other)
    write_manifest(other, replace(read_manifest(other), storage_format="json"))
    compact(run)
    compact(other)
    assert (other / "results.jsonl").exists()
    figures, others = (read_figures(path, read_manifest(path)) for path in (run, other))
    assert figures == others
    ids = figures.cases["case_id"]
    assert transcripts.pack(run, ids) == transcripts.pack(other, ids)


@pytest.fixture
def repeated(tmp_path):
    found = run_of_repetitions(tmp_path / "repeated")
    compact(found.path)
    return found.path


def test_costs_of_models_match_the_tables(repeated):
    figures = read_figures(repeated, read_manifest(repeated))
    rows = table(repeated, "results")
    assert [one.model for one in figures.costs] == ["m1", "m2"]
    for one in figures.costs:
        own = [row for row in rows if row["model"] == one.model]
        assert one.cost == pytest.approx(sum(row["cost"] for row in own))
        assert one.cost > 0
        n_solved = sum(row["outcome"] == "solved" for row in own)
        assert (one.n_solved, one.n_unknown) == (n_solved, 0)
        assert one.per_solved == pytest.approx(one.cost / n_solved)
    assert [row[2:4] for row in costs_plot(figures.costs, "USD").rows] == [
        (money(one.per_solved, "USD"), money(one.cost, "USD")) for one in figures.costs
    ]


def test_pass_at_k_matches_the_tables(repeated):
    figures = read_figures(repeated, read_manifest(repeated))
    cells = defaultdict(list)
    for row in table(repeated, "results"):
        if row["outcome"] in {"solved", "unsolved"}:
            cells[row["model"], row["param.flaw"]].append(row["outcome"] == "solved")
    assert [(one.model, one.k) for one in figures.passes] == [
        (model, k) for model in ("m1", "m2") for k in (1, 2, 3)
    ]
    for one in figures.passes:
        own = [hits for (model, _), hits in cells.items() if model == one.model]
        draws = [
            statistics.mean(any(some) for some in itertools.combinations(hits, one.k))
            for hits in own
            if len(hits) >= one.k
        ]
        assert one.n == len(draws)
        assert one.value == pytest.approx(statistics.mean(draws))
        assert 0 <= one.low <= one.value <= one.high <= 1
    said = {(one.model, one.figure): one for one in read_summary(repeated).repetitions}
    for one in figures.passes:
        if one.k in {1, 3}:
            figure = said[one.model, f"pass@{one.k}"]
            assert (figure.value, figure.interval) == (one.value, (one.low, one.high))


def test_models_are_compared_with_the_best_one_paired_by_case(repeated):
    figures = read_figures(repeated, read_manifest(repeated))
    (look,) = figures.compared_with_best
    asked = defaultdict(dict)
    for row in table(repeated, "results"):
        if row["outcome"] in {"solved", "unsolved"}:
            solved = row["outcome"] == "solved"
            asked[row["param.flaw"], row["repeat"]][row["model"]] = solved
    pairs = [(own["m2"], own["m1"]) for own in asked.values() if len(own) == 2]
    assert (figures.best, look.model, look.n) == ("m2", "m1", len(pairs))
    assert (look.n_gained, look.n_lost) == (pairs.count((False, True)), pairs.count((True, False)))
    assert look.low <= look.difference <= 0 <= look.high
    page = render(repeated).decode()
    assert "Comparison with m2, the model with the highest solve rate" in page
    assert f"<td>{look.low * 100:+.0f} to {look.high * 100:+.0f}</td><td>may be chance" in page


def test_time_of_a_case_is_the_sum_of_its_parts_and_has_a_timeline(tmp_path):
    run = make_run(tmp_path / "r", [case(0), case(1)])
    first = attempt(10.1, 11.0, rate_wait_s=8.0, seat_wait_s=1.0)
    sent = [
        replace(first, t_lease_s=10.0),
        replace(attempt(13.0, 13.5, 1, "rate"), t_ready_s=11.0, rate_wait_s=2.0),
        attempt(14.5, 16.0, 2),
    ]
    # Four requests at the same time: three wait, in total longer than the case takes.
    at_once = [replace(attempt(2.0, 3.0, n), t_ready_s=1.0, seat_wait_s=1.0) for n in range(4)]
    write_journal(
        run,
        "gw0",
        episode(0, 10.0, 16.0, attempts=sent, backoff_s=1.0),
        grade(0),
        episode(1, 1.0, 3.0, attempts=at_once),
        grade(1),
    )
    compact(run.path)
    found = lines(read_figures(run.path, read_manifest(run.path)))
    one, other = sorted(found, key=lambda line: line.case_id)
    assert (one.duration_s, one.line_s) == (6.0, 9.0)
    assert one.parts == {
        "answers": 2.5, "waits for seats and rates": 2.0, "back-off": 1.0, "refused requests": 0.5,
    }  # fmt: skip
    assert (other.duration_s, other.line_s) == (2.0, 0.0)
    assert sum(other.parts.values()) == other.duration_s


@pytest.mark.parametrize(("outcomes", "said"), [("ss", "equal"), ("su", "may be chance")])
def test_equal_results_are_not_called_chance(tmp_path, outcomes, said):
    cases = [case(2 * n + m, f"m{m + 1}", level=n) for n in range(4) for m in range(2)]
    run = make_run(tmp_path / "r", cases)
    for n in range(8):
        how = "unsolved" if n == 7 and "u" in outcomes else "solved"
        write_journal(run, f"gw{n}", episode(n, 1, 2), grade(n, how))
    compact(run.path)
    page = render(run.path).decode()
    (verdict,) = re.findall(r"<td>[^<]*</td><td>(equal|may be chance|not known|yes)</td>", page)
    assert verdict == said
    assert "Comparison with m1, the model with the highest solve rate" in page


def test_first_token_times_match_the_tables(repeated):
    figures = read_figures(repeated, read_manifest(repeated))
    model_of = {row["case_id"]: row["model"] for row in table(repeated, "results")}
    waits = defaultdict(list)
    for row in table(repeated, "attempts"):
        if row["t_first_token_s"] is not None:
            waits[model_of[row["case_id"]]].append(row["t_first_token_s"] - row["t_send_s"])
    assert {
        one.model: (one.n, one.shortest_s, one.p50_s, one.p95_s, one.longest_s)
        for one in figures.first_tokens
    } == {
        model: (len(own), min(own), latency_of(own).p50_s, latency_of(own).p95_s, max(own))
        for model, own in waits.items()
    }


def test_limits_and_pauses_match_the_tables(repeated):
    figures = read_figures(repeated, read_manifest(repeated))
    (limit,) = figures.limits
    rows = table(repeated, "limits")
    start_s = min(row["t_send_s"] for row in table(repeated, "attempts"))
    assert limit.at_s == [row["t_s"] - start_s for row in rows]
    assert limit.workers == [row["workers"] for row in rows] == [4, 5, 6]
    ((name, drawn, *told),) = limits_plot(figures.limits).rows
    assert (name, *told) == ("lab/key0", "3", "4", "6", "grew")
    (allowed,) = re.findall(r'data-values="(.*?)"', drawn)
    assert list(dict.fromkeys(allowed.split("|"))) == ["4", "4, grew", "5, grew", "5", "6, grew"]
    (lane,) = figures.lanes
    assert (lane.pauses, lane.paused_s, lane.n_opened) == (3, 91.5, 1)
    pauses = table(repeated, "pauses")
    assert sum(row["t_end_s"] - row["t_s"] for row in pauses) == lane.paused_s
    spans = {"rate": lane.pauses_at_s, "breaker": lane.opened_at_s}
    for cause, found in spans.items():
        own = [row for row in pauses if row["cause"] == cause]
        assert found == [(row["t_s"] - start_s, row["t_end_s"] - start_s) for row in own]
    (row,) = lanes_plot([lane]).rows
    assert Counter(re.findall(r'<line class="(\w+)"', row[1])) == {"paused": 2, "opened": 1}
    assert row[1].count("0V100") == len({int(at_s / lane.slice_s) for at_s in lane.refused_at_s})
    refused = [row for row in table(repeated, "attempts") if row["outcome"] == "rate"]
    assert len(lane.refused_at_s) == len(refused) == 24


def figures_of(directory, cases):
    """The figures of a run that solved all these cases."""
    run = make_run(directory, cases, models=tuple({one.model for one in cases}))
    for number in range(len(cases)):
        write_journal(run, f"gw{number}", episode(number, 1.0, 2.0), grade(number))
    compact(run.path)
    return read_figures(run.path, read_manifest(run.path))


def test_tests_are_a_dimension_and_cases_show_their_reasons(tmp_path):
    cases = [replace(case(n), nodeid=f"t/test_x.py::test_{'ab'[n % 2]}[{n}]") for n in range(6)]
    run = make_run(tmp_path / "r", cases)
    for n in range(6):
        how = {"reason": f"reason {n}"} if n < 3 else {"error": "assert 1"} if n == 3 else {}
        # The page lists failures first.
        outcome = "solved" if n < 2 else "unsolved"
        write_journal(run, f"gw{n}", episode(n, 1, 2), grade(n, outcome, **how))
    compact(run.path)
    figures = read_figures(run.path, read_manifest(run.path))
    assert [one.name for one in figures.dimensions] == ["", "test_name"]
    assert figures.dimensions[1].values == ["test_a", "test_b"]
    assert [square.n for square in figures.dimensions[1].squares[0]] == [3, 3]
    assert {one.case_id: one.error for one in lines(figures)} == {
        **{f"case{n}": f"reason {n}" for n in range(3)},
        "case3": "assert 1",
        "case4": "",
        "case5": "",
    }


def test_names_that_look_the_same_get_a_number(tmp_path):
    figures = figures_of(
        tmp_path / "r",
        [
            case(0, model="\x1b", flaw="p" * 10_000 + "1"),
            case(1, model=r"\x1b", flaw="p" * 10_000 + "2"),
            case(2, model="a  b", flaw="q"),
        ],
    )
    assert figures.models == [r"\x1b", r"\x1b (2)", "a  b"]
    (flaw,) = [each for each in figures.dimensions if each.name == "flaw"]
    assert flaw.values == [f"{'p' * 60}...", f"{'p' * 60}... (2)", "q"]
    assert set(figures.cases["model"]) == {0, 1, 2}
    assert max(len(one.params["flaw"]) for one in lines(figures)) < 600
    assert max(map(len, figures.cases["name"])) < 400


def test_long_errors_are_shortened(tmp_path):
    run = make_run(tmp_path / "r", [case(0)])
    error = "line\n" * 400_000
    write_journal(run, "gw0", episode(0, 1, 2), grade(0, "error", kind="E", error=error))
    compact(run.path)
    (line,) = lines(read_figures(run.path, read_manifest(run.path)))
    assert len(line.error) < 4_100
    assert line.error.endswith(" characters]")


def test_transcripts_are_packed_until_the_page_is_full(run, monkeypatch):
    ids = [f"case{n}" for n in range(6)]
    monkeypatch.setattr(transcripts, "CASES_OF_A_PART", 2)
    packed = transcripts.pack(run, ids)
    assert packed.n_left_out == 0
    assert packed.of_case == {one: n // 2 for n, one in enumerate(ids)}
    part = unpacked(packed.parts[0])
    assert [one["content"] for one in part["case0"]["messages"]] == ["q", "a"]
    assert [one["outcome"] for one in part["case1"]["attempts"]] == ["rate", "ok"]
    monkeypatch.setattr(transcripts, "MOST_BYTES", len(packed.parts[0]))
    assert transcripts.pack(run, ids).n_left_out == 4


def test_unpacked_size_of_transcripts_is_limited(tmp_path, monkeypatch):
    run = make_run(tmp_path / "r", [case(0), case(1)])
    messages = [TurnMessage(n, "assistant", "x" * 100_000) for n in range(20)]
    for number in range(2):
        write_journal(run, f"gw{number}", episode(number, 1, 2, messages=messages), grade(number))
    compact(run.path)
    packed = transcripts.pack(run.path, ["case0", "case1"])
    part = gzip.decompress(base64.b64decode(packed.parts[0]))
    assert len(part) < 2_100_000
    said = unpacked(packed.parts[0])["case0"]["messages"]
    assert len(said) == 20
    assert said[-1]["content"] == "[+100,000 characters]"
    monkeypatch.setattr(transcripts, "MOST_CHARACTERS", 1_500_000)
    monkeypatch.setattr(transcripts, "CASES_OF_A_PART", 1)
    assert transcripts.pack(run.path, ["case0", "case1"]).n_left_out == 1


def test_data_cannot_close_its_script_element():
    said = {"a": "</script><!--", "b": "\u2028"}
    assert b"<" not in embedded(said)
    assert json.loads(embedded(said)) == said


def test_page_allows_only_its_own_scripts(run):
    page = render(run).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert digest in policy.replace("&#43;", "+")


def test_report_is_written_to_the_run_or_to_out(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()
    assert main(["report", str(run), "--out", str(tmp_path / "a.html")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "a.html")
    assert main(["report", str(run), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### Run ")
    assert main(["report", str(run), "--markdown", "--out", str(tmp_path / "a.md")]) == 0
    assert (tmp_path / "a.md").read_text().startswith("### Run ")


@pytest.mark.parametrize("how", ["no run", "no folder", "no plan", "newer"])
def test_report_that_cannot_be_made_is_refused_in_one_line(run, tmp_path, refused, how):
    out = tmp_path / "there" / "a.html" if how == "no folder" else tmp_path / "a.html"
    name = str(tmp_path / "nowhere") if how == "no run" else str(run)
    if how == "no plan":
        (run / "summary.json").unlink()
        (run / "manifest.json").unlink()
    if how == "newer":
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"schema": 99}))
    (line,) = refused("report", name, "--out", str(out)).splitlines()
    assert line.startswith("ultrapar report: error: ")
    assert not out.exists()


@pytest.fixture
def killed(tmp_path):
    """A run of seven cases without tables. One case has no grade yet."""
    return run_of_seven(tmp_path / "killed").path


def shown(run, capsys):
    """The HTML and Markdown reports of a run. The reports change no file of the run."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out = run.parent / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert main(["report", str(run), "--markdown"]) == 0
    markdown = capsys.readouterr().out.split("\n", 1)[1]
    return out.read_text(), markdown


@pytest.mark.slow
def test_run_in_progress_can_be_reported_repeatedly(killed, capsys):
    going_on = RunDirectory.open_existing(killed)
    try:
        (segment, *_) = segments(killed / "journal")
        pages = []
        for number in range(3):
            # The worker is still writing a record.
            with segment.open("ab") as file:
                file.write(b"half of a rec" if number == 1 else b"ord")
            pages.append(shown(killed, capsys))
    finally:
        going_on.close()
    for page, markdown in pages:
        assert re.search(r"This run is in progress: 6 of 7 cases done at 2\d{3}-.* UTC", page)
        assert "This run is in progress" in markdown
        for told in (page, markdown):
            assert "1 waiting" in told
            assert not re.search("interrupted|never ran", told)
        assert tiles(page)["solved"][1].endswith("; may change, because slow cases finish last")
        assert tiles(page)["requests"][1].endswith(" rate limited")
        assert "gap" not in markdown


def test_run_that_ends_during_the_report_is_shown_from_its_tables(run, capsys, monkeypatch):
    going_on = RunDirectory.open_existing(run)
    copy = snapshot._copy

    def copy_while_it_ends(*where):
        copy(*where)
        going_on.close()

    monkeypatch.setattr(snapshot, "_copy", copy_while_it_ends)
    page, _ = shown(run, capsys)
    assert "This run is in progress" not in page


@pytest.mark.parametrize(
    "how",
    ["a folder", "a pipe", "a device", "in the run", "in another run", "a future file of the run"],
)
def test_only_pages_are_replaced(run, tmp_path, refused, how):
    out = tmp_path / "out"
    if how == "a pipe":
        os.mkfifo(out)
    elif how == "a device":
        out = Path(os.devnull)
    elif how == "in the run":
        out.symlink_to(run / "manifest.json")
    elif how == "in another run":
        shutil.copytree(run, tmp_path / "other")
        out = next((tmp_path / "other" / "journal").iterdir())
    elif how == "a future file of the run":
        # The run is in progress and writes this file later.
        out = run / "summary.json"
        out.unlink()
    else:
        out.mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    kind = {"a folder": how, "a pipe": "not a file", "a device": "not a file"}.get(
        how, "in the run"
    )
    for words in ([], ["--markdown"]):
        (line,) = refused("report", str(run), "--out", str(out), *words).splitlines()
        assert line.startswith(f"ultrapar report: error: --out {out} is {kind}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert out.is_fifo() == (how == "a pipe")


def test_pauses_of_a_killed_run_come_from_the_pause_records(repeated):
    before = read_figures(repeated, read_manifest(repeated)).lanes
    write_manifest(repeated, replace(read_manifest(repeated), lanes=[]))
    assert read_figures(repeated, read_manifest(repeated)).lanes == before


def tiles(page):
    parts = r'"label">(.*?)</div><div class="value">(.*?)</div><div class="quiet">(.*?)</div>'
    return {label: (value, note) for label, value, note in re.findall(parts, page)}


def test_page_shows_waits_by_limit_and_refused_requests(repeated):
    manifest = read_manifest(repeated)
    (lane,) = manifest.lanes
    waited = {"lab/key0 (qps)": 12.0, "pause": 90.0, "lab (workers)": 0.0}
    write_manifest(
        repeated,
        replace(manifest, lanes=[replace(lane, waited_s=waited, n_failed=2, n_rate_limited=24)]),
    )
    page = render(repeated).decode()
    assert tiles(page)["requests"][1] == "24 rate limited, 2 failed"
    said = waits_line(read_manifest(repeated).lanes)
    assert said.endswith(
        ", requests waited longest for paused lanes (90.0 s), lab/key0 (qps) (12.0 s)"
    )
    parts = Parts(**dict.fromkeys(Parts.__struct_fields__, 1.0))
    assert f"I{said[1:]}." in time_plot(Attribution(9.0, parts, ()), said).note


def test_scores_are_stored_with_the_transcript(run):
    packed = transcripts.pack(run, [f"case{n}" for n in range(6)])
    told = unpacked(packed.parts[0])
    for result in table(run, "results"):
        scores = {name: value for name, value in result.items() if name.startswith("score.")}
        (said,) = told[result["case_id"]]["scores"]
        assert {name: one for name, one in said.items() if one is not None} == {
            name.removeprefix("score."): f"{value:g}"
            for name, value in scores.items()
            if value is not None
        }


def test_tab_and_heading_show_the_suite_and_its_result(run):
    page = render(run).decode()
    graded = [row["outcome"] for row in table(run, "results") if row["outcome"] in GRADED]
    said = f"{graded.count('solved')} of {len(graded)} solved"
    run_id = read_manifest(run).run_id
    assert f"<title>{said}, phase53: run {run_id}</title>" in page
    assert f"<h1>phase53: {said}</h1>" in page


def test_contents_link_to_each_section_once(repeated):
    page = render(repeated).decode()
    (contents,) = re.findall(r'<nav id="contents".*?</nav>', page, re.DOTALL)
    parts = re.findall(r'<h2 id="(.*?)".*?>(.*?)</h2>', page)
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', contents) == parts
    assert {"Figures", "Models", "Solved in at least one of k repetitions", "Cases"} <= {
        title for _, title in parts
    }


def test_scores_are_shown_at_the_top_and_by_model(run):
    rows = [row for row in table(run, "results") if row["outcome"] in GRADED]
    scored = [row["score.workflow"] for row in rows if row["score.workflow"] is not None]
    page = render(run).decode()
    assert tiles(page)["workflow"] == (
        f"{statistics.mean(scored):.3f}", f"mean over {len(scored)} graded cases",
    )  # fmt: skip
    assert page.index(">workflow<") < page.index('id="h-models"')
    by_model = defaultdict(list)
    for row in rows:
        if row["score.workflow"] is not None:
            by_model[row["model"]].append(row["score.workflow"])
    part = page[page.index("<h3>Mean scores</h3>") : page.index('id="h-cases"')]
    for model, own in by_model.items():
        cells = re.search(rf'<th scope="row">{model}</th>((?:<td>.*?</td>)+)', part)[1]
        assert f"<td>{statistics.mean(own):.3f}</td>" in cells


def again(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(text)["again"]


def test_page_shows_commands_that_repeat_the_run_and_each_case(run):
    given = ("s/phase53", "-k", "not slow", "--lf", "--ultrapar-pool", "a pool.toml")
    write_manifest(run, replace(read_manifest(run), arguments=given))
    page = render(run).decode()
    assert "pytest s/phase53 -k &#39;not slow&#39; --lf --ultrapar-pool " in page
    assert again(page) == "pytest '--ultrapar-pool=a pool.toml'"


def test_run_without_pytest_has_no_command(run):
    write_manifest(run, replace(read_manifest(run), asked_by_others=True))
    page = render(run).decode()
    assert again(page) is None
    assert "<code>pytest" not in page


def test_pass_at_k_has_a_point_and_interval_for_each_model_and_k_best_model_first(repeated):
    plot = passes_plot(read_figures(repeated, read_manifest(repeated)).passes)
    assert plot.header == ("model", "k = 1", "k = 2", "k = 3")
    assert [row[0] for row in plot.rows] == ["m2", "m1"]
    for row in plot.rows:
        for cell in row[1:]:
            assert (cell.count("<circle"), cell.count('class="interval"')) == (1, 1)


def test_page_of_a_few_cases_is_small_and_shows_its_plots_without_a_script(tmp_path):
    run = make_run(tmp_path / "r", [case(n) for n in range(20)])
    for n in range(20):
        write_journal(run, f"gw{n}", episode(n, n / 10, n / 10 + 1), grade(n))
    compact(run.path)
    page = render(run.path)
    assert len(page) < 400_000
    seen = re.sub(r"<script.*?</script>", "", page.decode(), flags=re.DOTALL)
    plots = re.findall(r'<div class="plot".*?</table>', seen, re.DOTALL)
    assert plots
    assert all("<svg" in plot for plot in plots)


PATH = ("azure/key0", "azure")


def test_use_of_a_limit_counts_the_requests_on_its_lanes(tmp_path):
    lanes = [
        Lane(LaneId(f"azure/dep{n}/key0"), "azure", "m1", f"dep{n}", "key0", PATH, 0.0, 9.0)
        for n in range(2)
    ]
    limits = (
        Limit("azure/key0", "key", workers=4, qps=2),
        Limit("azure", "provider", rpm=30, tpm=6000),
    )
    run = make_run(tmp_path / "r", [case(0), case(1)], pool_lanes=tuple(lanes), pool_limits=limits)
    tried = [
        attempt(0.0, 10.0, tokens_in=100, tokens_out=20),
        attempt(5.0, 10.0, 1, tokens_in=700, tokens_out=None),
        attempt(9.0, 10.0, 2, tokens_in=None, tokens_out=None),
    ]
    write_journal(run, "gw0", episode(0, 0.0, 10.0, attempts=tried), grade(0))
    compact(run.path)
    found = {one.limit: one for one in read_figures(run.path, read_manifest(run.path)).limit_uses}
    assert [*found] == [
        "azure (rpm 30)",
        "azure (tpm 6000)",
        "azure/key0 (qps 2)",
        "azure/key0 (workers 4)",
    ]
    workers = found["azure/key0 (workers 4)"]
    seconds = sum(workers.shares) * 4 * workers.slice_s
    assert seconds == pytest.approx(10.0 + 5.0 + 1.0, rel=0.01)
    assert max(workers.shares) == pytest.approx(3 / 4)
    # The use of a rate counts the requests sent in its window.
    assert found["azure/key0 (qps 2)"].shares[0] == 1 / 2
    assert found["azure/key0 (qps 2)"].shares[50] == 0
    assert found["azure (rpm 30)"].shares[-1] == pytest.approx(3 / 30)
    tokens = found["azure (tpm 6000)"].shares
    assert (tokens[50], tokens[-1]) == pytest.approx((120 / 6000, 820 / 6000), abs=1e-4)


def test_killed_run_is_shown_with_its_finished_cases(killed, capsys):
    page, markdown = shown(killed, capsys)
    said = "This run was interrupted: 6 of 7 cases done; finish it with --ultrapar-resume"
    assert said in page
    assert said in markdown
    assert f"results in {killed}" in page


def test_a_file_of_another_kind_is_never_overwritten(run, tmp_path, refused):
    pool, new = tmp_path / "pool.toml", tmp_path / "page"
    pool.write_text("[defaults]")
    said = refused("report", str(run), "--out", str(pool))
    assert f"--out {pool} already exists and its name does not end in .html" in said
    assert pool.read_text() == "[defaults]"
    assert main(["report", str(run), "--out", str(new)]) == 0
    assert new.read_text().startswith("<!doctype html>")


def test_run_without_results_has_a_page(tmp_path):
    found = run_of_seven(tmp_path / "stopped")
    for path in segments(found.journal):
        graded = {line for line in path.read_bytes().splitlines(True) if b'"type":"grade"' in line}
        kept = [line for line in path.read_bytes().splitlines(True) if line not in graded]
        path.write_bytes(b"".join(kept))
    compact(found.path)
    assert table(found.path, "results") == []
    assert table(found.path, "attempts")
    assert read_figures(found.path, read_manifest(found.path)).cases["case_id"] == []


def test_score_of_any_name_is_shown_with_its_case(tmp_path):
    found = make_run(tmp_path / "scores", [case(0), case(1)])
    graded = [grade(n, scores={"case": 0.25, "columns": 1.0}) for n in (0, 1)]
    write_journal(found, "gw0", episode(0, 1.0, 2.0), episode(1, 1.0, 2.0), *graded)
    compact(found.path)
    told = unpacked(transcripts.pack(found.path, ["case0", "case1"]).parts[0])
    assert [told[one]["scores"] for one in told] == [[{"case": "0.25", "columns": "1"}]] * 2
