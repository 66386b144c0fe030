"""The content of a comparison's page, compared with the tables of its runs."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.equivalence import ALL_MODELS
from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.cli import main
from pytest_ultrapar.compare.changes import changed_dimensions, changed_tests, grid_of
from pytest_ultrapar.compare.comparison import compare_runs
from pytest_ultrapar.compare.flips import (
    GAINED,
    LOST,
    NO_GRADE_BEFORE,
    NO_GRADE_NOW,
    TURNS,
    read_flips,
)
from pytest_ultrapar.compare.page import render
from pytest_ultrapar.compare.report import comparison_sections
from pytest_ultrapar.report.pages import transcripts
from pytest_ultrapar.report.text import percent
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.unit.compared_runs import write_run
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal

GRADED = {"solved", "partial", "unsolved"}
OUTCOMES = {
    "first": {
        "alpha": ["solved"] * 20 + ["unsolved"] * 10,
        "beta": ["solved", "infra"] * 15,
    },
    "second": {
        "alpha": ["solved"] * 25 + ["unsolved"] * 5,
        "beta": ["solved", "unsolved", "partial"] * 10,
    },
    "third": {
        "alpha": ["unsolved"] * 8 + ["solved"] * 21 + ["infra"],
        "beta": ["unsolved", "solved"] * 15,
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: write_run(folder / name, own, factor=1 + number / 10)
        for number, (name, own) in enumerate(OUTCOMES.items())
    }


def compared(base, *others):
    found = find_measured_run(str(base))
    return found, compare_runs(found, [find_measured_run(str(one)) for one in others])


def rows_of(run):
    return {row["case_id"]: row for row in pq.read_table(run / "results.parquet").to_pylist()}


def page_of(base, *others):
    return render(*compared(base, *others)).decode()


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(text)


def test_changes_match_the_tables(runs):
    _, (found,) = compared(runs["first"], runs["third"])
    before, now = rows_of(runs["first"]), rows_of(runs["third"])
    pairs = [
        (row, now[key])
        for key, row in before.items()
        if row["outcome"] in GRADED and now[key]["outcome"] in GRADED
    ]
    grid = grid_of(found.pairing)
    assert grid.rows == [ALL_MODELS, "alpha", "beta"]
    dimensions = changed_dimensions(found.pairing, grid)
    assert [one.name for one in dimensions] == ["", "flaw", "level"], "deep has one value"
    for one in dimensions:
        for model, looks in zip(grid.rows, one.looks, strict=True):
            for value, look in zip(one.values, looks, strict=True):
                own = [
                    (base["outcome"] == "solved", new["outcome"] == "solved")
                    for base, new in pairs
                    if model in {ALL_MODELS, base["model"]}
                    and (not one.name or str(base[f"param.{one.name}"]) == value)
                ]
                if not own:
                    assert look is None, "infra in each odd case of beta"
                    continue
                assert look.n == len(own)
                assert look.n_gained == own.count((False, True))
                assert look.n_lost == own.count((True, False))
                assert look.base == pytest.approx(sum(base for base, _ in own) / len(own))
                assert look.low <= look.new - look.base <= look.high


@pytest.mark.parametrize("by_id", [False, True])
def test_changes_by_test_and_id_match_the_tables(tmp_path, by_id):
    paths = []
    for name, hits in (("one", 5), ("two", 2)):
        cases = [
            case(n, f"m{n % 2}", test=("long", "short")[n % 4 // 2], level=n // 4)
            for n in range(24)
        ]
        cases = [
            msgspec.structs.replace(one, nodeid=f"s/test_x.py::test_{one.params['test']}[{n}]")
            for n, one in enumerate(cases)
        ]
        run = make_run(tmp_path / name, cases)
        ended = msgspec.structs.replace(read_manifest(run.path), ended_at=NOW)
        write_manifest(run.path, ended)
        for n in range(24):
            outcome = "solved" if n % 7 < hits else "unsolved"
            write_journal(run, f"gw{n}", episode(n, 0.0, 1.0), grade(n, outcome))
        compact(run.path)
        paths.append(run.path)
    _, (found,) = compared(*paths)
    before, now = map(rows_of, paths)
    pairs = defaultdict(list)
    for key, row in before.items():
        name = f"test_x.py::test_{row['param.test']}"
        name += f"[{row['param.level']}]" if by_id else ""
        pairs[name].append((row["outcome"] == "solved", now[key]["outcome"] == "solved"))
    changes = changed_tests(found.pairing, by_id=by_id)
    assert {name: (look.n, look.n_gained, look.n_lost) for name, look in changes} == {
        name: (len(own), own.count((False, True)), own.count((True, False)))
        for name, own in pairs.items()
    }
    assert [look.chance for _, look in changes] == sorted(look.chance for _, look in changes)
    page = page_of(*paths)
    plot = page[page.index(f'id="plot-{"ids" if by_id else "tests"}"') :].split("</table>")[0]
    shown = [look for _, look in changes if not by_id or look.n_gained or look.n_lost]
    assert plot.count("<circle") == plot.count('class="interval"') == len(shown) > 1
    for name, look in changes:
        if look in shown:
            row = re.search(rf">{re.escape(name)}</th>(.*?)</tr>", plot)[1]
            assert f"<td>{100 * (look.new - look.base):+.1f}</td>" in row


def test_title_of_the_tab_has_the_change_and_the_suite(runs):
    _, (found,) = compared(runs["first"], runs["third"])
    (look,) = [one for one in found.looks if (one.model, one.figure) == ("", "solved_rate")]
    page = page_of(runs["first"], runs["third"])
    change = f"solve rate {100 * (look.new - look.base):+.1f} points"
    assert f"<title>{change}, phase53: " in page
    assert f"<h1>phase53: {change}</h1>" in page
    assert '<a href="#h-ids">Changes by id</a>' in page


def test_each_test_is_a_dimension_with_its_own_answers(tmp_path):
    names = ("test_a", "test_b")
    runs = [write_run(tmp_path / name, OUTCOMES[name], tests=names) for name in ("first", "third")]
    base, (found,) = compared(*runs)
    dimensions = changed_dimensions(found.pairing, grid_of(found.pairing))
    assert [one.name for one in dimensions] == ["", "test_name", "flaw", "level"]
    before, now = map(rows_of, runs)
    for at, name in enumerate(names):
        own = [
            (row["outcome"] == "solved", now[key]["outcome"] == "solved")
            for key, row in before.items()
            if f"::{name}[" in row["nodeid"]
            and row["outcome"] in GRADED
            and now[key]["outcome"] in GRADED
        ]
        look = next(one for one in found.tests[name] if one.model == ALL_MODELS)
        assert (look.n, look.n_gained) == (len(own), own.count((False, True)))
        assert dimensions[1].looks[0][at] == look
    titles = [one.title for one in comparison_sections(base, [found])]
    of = f" in {found.pairing.new.run_id}"
    at = titles.index(f"answers{of}")
    assert titles[at + 1 : at + 3] == [f"answers of test_a{of}", f"answers of test_b{of}"]


def test_change_of_a_model_is_the_same_as_in_the_text(runs):
    _, (found,) = compared(runs["first"], runs["third"])
    grid = grid_of(found.pairing)
    whole = changed_dimensions(found.pairing, grid)[0]
    rates = {look.model: look for look in found.looks if look.figure == "solved_rate"}
    assert {row: look for row, (look,) in zip(grid.rows, whole.looks, strict=True)} == rates


def test_flips_match_the_tables(runs):
    _, (found,) = compared(runs["first"], runs["third"])
    before, now = rows_of(runs["first"]), rows_of(runs["third"])
    wanted = {}
    for key, row in before.items():
        graded = (row["outcome"] in GRADED, now[key]["outcome"] in GRADED)
        solved = (row["outcome"] == "solved", now[key]["outcome"] == "solved")
        if graded == (True, True) and solved[0] != solved[1]:
            wanted[key] = LOST if solved[0] else GAINED
        elif graded[0] != graded[1]:
            wanted[key] = NO_GRADE_NOW if graded[0] else NO_GRADE_BEFORE
    flips = read_flips(found.pairing, grid_of(found.pairing))
    assert {flip.case_id: TURNS[flip.turn] for flip in flips.lines} == wanted
    assert set(wanted.values()) == {LOST, GAINED, NO_GRADE_NOW, NO_GRADE_BEFORE}
    order = [TURNS[flip.turn] for flip in flips.lines]
    assert order == sorted(order, key=(LOST, GAINED, NO_GRADE_NOW, NO_GRADE_BEFORE).index)
    for flip in flips.lines:
        for side, rows in ((flip.before, before), (flip.now, now)):
            assert side.outcome == rows[flip.case_id]["outcome"]
            assert side.kind == (rows[flip.case_id]["kind"] or "")
            assert side.error == (rows[flip.case_id]["reason"] or "")
            assert side.duration_s == pytest.approx(rows[flip.case_id]["duration_s"])


def test_conversations_of_both_runs_share_the_size_limit_of_a_page(runs, monkeypatch):
    _, (found,) = compared(runs["first"], runs["third"])
    whole = read_flips(found.pairing, grid_of(found.pairing))
    assert whole.n_left_out == 0
    assert {flip.now.shard for flip in whole.lines}.isdisjoint(
        flip.before.shard for flip in whole.lines
    )
    monkeypatch.setattr(transcripts, "MOST_BYTES", sum(map(len, whole.parts)) // 2)
    few = read_flips(found.pairing, grid_of(found.pairing))
    assert sum(map(len, few.parts)) <= transcripts.MOST_BYTES
    lacking = [side.shard for flip in few.lines for side in (flip.before, flip.now)].count(None)
    assert few.n_left_out == lacking > 0
    page = page_of(runs["first"], runs["third"])
    assert f"Conversations left out to keep this page small: {lacking};" in page


def test_last_run_is_compared_with_the_first_and_all_runs_have_a_row(runs):
    page = page_of(*runs.values())
    found = [find_measured_run(str(run)) for run in runs.values()]
    assert re.findall(r'id="h-verdict">Compared with (.*?)<', page) == [found[0].run_id]
    table = page[page.index('id="h-runs"') : page.index('id="h-models"')]
    for run, own in zip(found, re.findall(r"<tr>(.*?)</tr>", table)[1:], strict=True):
        rows = rows_of(run.directory).values()
        graded = [row["outcome"] == "solved" for row in rows if row["outcome"] in GRADED]
        cells = re.findall(r"<t[hd].*?>(.*?)</t[hd]>", own)
        assert cells[1] == run.run_id
        assert cells[4:6] == [str(len(graded)), percent(sum(graded) / len(graded))]
    first, third = rows_of(runs["first"]), rows_of(runs["third"])
    lost = [
        key
        for key in first
        if first[key]["outcome"] == "solved" and third[key]["outcome"] in GRADED - {"solved"}
    ]
    data = data_of(page)
    own = [flip for flip in data["flips"] if data["turns"][flip["turn"]] == LOST]
    assert sorted(flip["case_id"] for flip in own) == sorted(lost)


def test_texts_of_a_run_are_escaped(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>\u202e"
    runs = [
        write_run(
            tmp_path / name,
            {evil: [outcome, "solved"], "beta": ["solved", outcome]},
            data={evil: name},
        )
        for name, outcome in (("one", "solved"), ("two", "unsolved"))
    ]
    page = page_of(*runs)
    assert "onerror" in page
    assert "<img" not in page
    seen = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "\u202e" not in seen
    assert r"\u202e was one and is two" in seen
    for flip in data_of(page)["flips"]:
        shown = {key: value for key, value in flip.items() if key != "case_id"}
        assert "\u202e" not in json.dumps(shown, ensure_ascii=False)


@pytest.mark.parametrize("n", [1, 3])
def test_identical_runs_have_a_page(tmp_path, n):
    runs = [write_run(tmp_path / name, {"alpha": ["solved"] * n}) for name in ("one", "two")]
    page = page_of(*runs)
    assert data_of(page)["flips"] == []
    assert "have the same grades in both runs" in page or "has the same grades" in page


def test_command_writes_the_page_and_prints_its_path(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.html").write_text("an earlier page")
    names = [str(run) for run in runs.values()]
    assert main(["compare", *names[:2], "--html", "a.html"]) == 0
    assert capsys.readouterr().out == "a.html\n"
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert main(["compare", *names, "--html", "a.html"]) == 0
    assert "the last and the first of 3 runs" in (tmp_path / "a.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
