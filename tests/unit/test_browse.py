"""`ultrapar runs`, `show` and `clean`, over runs of every kind."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.cli import main
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory
from tests.unit.finished_run import (
    NOW,
    case,
    episode,
    grade,
    make_run,
    run_of_seven,
    write_journal,
)


def finished(path, *, days=0, n=1, text="a"):
    """A complete run that began so many days after `NOW`."""
    run = make_run(path, [case(k) for k in range(n)], started_at=NOW + timedelta(days=days))
    messages = [TurnMessage(0, "user", "q"), TurnMessage(0, "assistant", text)]
    for k in range(n):
        write_journal(run, f"gw{k}", episode(k, 1.0, 2.0, messages=messages), grade(k))
    compact(run.path)
    manifest = read_manifest(run.path)
    write_manifest(run.path, msgspec.structs.replace(manifest, ended_at=NOW))
    return run.path


@pytest.fixture
def folder(tmp_path):
    """Three complete runs, one that was interrupted, one that cannot be read, and no run."""
    parent = tmp_path / "runs"
    parent.mkdir()
    for days in range(3):
        finished(parent / f"day{days}", days=days)
    seven = run_of_seven(parent / "seven", started_at=NOW + timedelta(days=9))
    compact(seven.path)
    broken = finished(parent / "broken")
    (broken / "manifest.json").write_text("{")
    (parent / "notes").mkdir()
    (parent / "notes" / "a.txt").write_text("mine")
    (parent / "elsewhere").symlink_to(tmp_path)
    return parent


def listed(folder, capsys):
    assert main(["runs", str(folder), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_runs_are_listed_the_newest_first(folder, capsys):
    found = listed(folder, capsys)
    assert [Path(one["path"]).name for one in found] == [
        "seven", "day2", "day1", "day0", "broken",
    ]  # fmt: skip
    assert [one["state"] for one in found] == [
        "interrupted", "complete", "complete", "complete", "unreadable",
    ]  # fmt: skip
    seven = found[0]
    assert (seven["n_cases"], seven["n_graded"], seven["simulated"]) == (7, 4, True)
    assert seven["solved"] == 0.5
    assert found[1]["n_bytes"] > 1000
    assert main(["runs", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "interrupted, SIMULATED" in lines[1]


def test_run_that_goes_on_is_said_to(folder, capsys):
    run = RunDirectory.open_existing(folder / "day2")
    assert listed(folder, capsys)[1]["state"] == "going on"
    run.close()
    assert listed(folder, capsys)[1]["state"] == "complete"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_clean_removes_nothing_without_yes(folder, capsys):
    before = names(folder)
    assert main(["clean", str(folder), "--keep", "0"]) == 0
    assert names(folder) == before
    assert "4 runs, " in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--keep", "2"], ["broken", "day2", "elsewhere", "notes", "seven"]),
        (["--interrupted"], ["broken", "day0", "day1", "day2", "elsewhere", "notes"]),
        (["--keep", "0"], ["broken", "elsewhere", "notes"]),
        (["--older-than", "1d"], ["broken", "day0", "day1", "day2", "elsewhere", "notes", "seven"]),
    ],
)
def test_clean_removes_what_was_chosen_and_nothing_else(folder, options, left, capsys):
    # All of them began in the future, so none is a day old.
    assert main(["clean", str(folder), *options, "--yes"]) == 0
    assert (folder / "notes" / "a.txt").read_text() == "mine"
    assert names(folder) == left
    assert (folder / "elsewhere" / "runs").is_dir()


def test_clean_leaves_a_run_that_is_in_use(folder, capsys):
    run = RunDirectory.open_existing(folder / "day0")
    assert main(["clean", str(folder), "--keep", "0", "--yes"]) == 0
    assert "day0" in names(folder)
    run.close()


def test_latest_goes_with_its_run(tmp_path):
    path = finished(tmp_path / "runs" / "a")
    latest = path.parent / "latest"
    latest.symlink_to("a")
    assert main(["clean", str(path.parent), "--keep", "0", "--yes"]) == 0
    assert names(path.parent) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clean", "{folder}"], "say which runs"),
        (["clean", "{folder}", "--keep", "-1"], "must be >= 0"),
        (["clean", "{folder}", "--older-than", "soon"], "such as 12h, 30d or 4w"),
        (["runs", "{folder}/nowhere"], "No such file"),
        (["show", "{folder}/nowhere"], "no run found"),
        (["show", "{folder}/day0", "test[0"], None),
        (["show", "{folder}/seven", "test["], "is part of the names of 6 cases"),
        (["show", "{folder}/seven", "tset[3]"], "did you mean s/phase53/test_x.py::test[3]?"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(folder, arguments, said, capsys):
    code = main([word.replace("{folder}", str(folder)) for word in arguments])
    assert code == (0 if said is None else 4)
    if said is not None:
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_cases_are_listed_failures_first(folder, capsys):
    assert main(["show", str(folder / "seven")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        "error", "unsolved", "partial", "skipped", "solved", "solved",
    ]  # fmt: skip
    assert main(["show", str(folder / "seven"), "--failed"]) == 0
    assert "solved  " not in capsys.readouterr().out.replace("unsolved", "")


def test_case_is_shown_with_its_conversation_and_requests(folder, capsys):
    assert main(["show", str(folder / "seven"), "test[1]"]) == 0
    text = capsys.readouterr().out
    assert "partial, model m1, case case1" in text
    assert "scores: extra 1, workflow 0.25" in text
    assert "--- turn 0, assistant\na\n[tool calls]" in text
    assert text.count("azure/dep0/key0") == 2
    assert "429" in text


def test_what_a_model_wrote_cannot_steer_the_terminal(tmp_path, capsys):
    path = finished(tmp_path / "runs" / "a", text="\x1b[2J\x1b]0;x\x07\u202egnp\udc80")
    assert main(["show", str(path), "case0"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert r"\x1b[2J\x1b]0;x\x07\u202egnp" in text
