from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.records import Case, EpisodeStarted
from pytest_ultrapar.store.cases_file import (
    ComingCases,
    missing_message,
    read_cases,
    suite_digest,
    write_cases,
)
from pytest_ultrapar.store.journal import JournalWriter
from pytest_ultrapar.store.run_directory import RunDirectory, resolve_run

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def parent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".ultrapar"


def case(index, case_id):
    return Case(index, case_id, f"test_x.py::test[{index}]", "phase51", "m", 0, {"p": 1}, 7)


def start_a_run(run):
    writer = JournalWriter(run.journal, "main", lambda data: data)
    writer.append(EpisodeStarted("a", "main", 1))
    writer.close()


def test_run_directory_is_named_by_utc_time(parent):
    east = NOW.astimezone(timezone(timedelta(hours=8)))
    run = RunDirectory.create(None, east)
    assert run.path.parent == parent
    assert run.run_id.startswith("20300102T030405Z-")
    assert run.path.name == run.run_id
    assert run.journal.is_dir()
    assert {run.path.stat().st_mode & 0o777, parent.stat().st_mode & 0o777} == {0o700}
    run.close()
    run.close()


def test_latest_points_to_the_newest_run_in_any_directory(parent, tmp_path):
    RunDirectory.create(None, NOW).point_latest()
    second = RunDirectory.create(tmp_path / "deep" / "out", NOW)
    second.point_latest()
    third = RunDirectory.create(None, NOW)
    assert resolve_run("latest") == second.path.resolve()
    third.point_latest()
    assert (parent / "latest").readlink() == Path(third.run_id)
    assert resolve_run(third.run_id) == third.path.resolve()


def test_run_directory_in_use_is_refused_with_the_process_id(tmp_path):
    run = RunDirectory.create(tmp_path / "out", NOW)
    for open_again in (
        lambda: RunDirectory.create(tmp_path / "out", NOW),
        lambda: RunDirectory.open_existing(tmp_path / "out"),
    ):
        with pytest.raises(ConfigError, match=f"in use by the run with process id {os.getpid()}"):
            open_again()
    run.close()
    RunDirectory.open_existing(tmp_path / "out").close()


def test_run_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and contains no run"):
        RunDirectory.create(tmp_path, NOW)
    with pytest.raises(ConfigError, match=r"cannot use .*notes\.txt"):
        RunDirectory.create(tmp_path / "notes.txt", NOW)


def test_run_directory_of_an_earlier_run_is_refused_with_a_remedy(tmp_path):
    run = RunDirectory.create(tmp_path / "out", NOW)
    start_a_run(run)
    run.close()
    with pytest.raises(ConfigError, match=r"another directory, or .*--ultrapar-resume=.*out"):
        RunDirectory.create(tmp_path / "out", NOW)


def test_run_directory_of_a_run_that_never_began_is_reused(tmp_path):
    first = RunDirectory.create(tmp_path / "out", NOW)
    write_cases(first.path, [case(0, "old")])
    JournalWriter(first.journal, "main", lambda data: data).close()
    first.close()
    second = RunDirectory.create(tmp_path / "out", NOW)
    assert second.run_id != first.run_id
    assert write_cases(second.path, [case(0, "new")]) == []
    assert read_cases(second.path) == [case(0, "new")]
    second.close()


def test_discard_removes_only_files_of_the_run(tmp_path):
    new = RunDirectory.create(tmp_path / "hosts" / "a", NOW)
    (new.path / "cases.json").touch()
    new.discard()
    assert list(tmp_path.joinpath("hosts").iterdir()) == []
    # The user made this directory, for one run or for several.
    was_there = RunDirectory.create(tmp_path / "hosts", NOW)
    was_there.discard()
    assert list(tmp_path.joinpath("hosts").iterdir()) == []
    # A run that never began left its lock next to other runs.
    RunDirectory.create(tmp_path / "hosts", NOW).close()
    other = RunDirectory.create(tmp_path / "hosts" / "b", NOW)
    other.close()
    (tmp_path / "hosts" / "notes.txt").touch()
    beside = RunDirectory.create(tmp_path / "hosts", NOW)
    (beside.path / "cases.json").touch()
    beside.discard()
    assert {path.name for path in tmp_path.joinpath("hosts").iterdir()} == {"b", "notes.txt"}
    assert other.journal.is_dir()


def test_second_discard_does_not_remove_a_later_run(tmp_path):
    refused = RunDirectory.create(tmp_path / "run", NOW)
    refused.discard()
    after = RunDirectory.create(tmp_path / "run", NOW)
    refused.discard()
    assert after.journal.is_dir()
    after.close()


def test_discard_of_a_reopened_run_removes_nothing(tmp_path):
    RunDirectory.create(tmp_path / "run", NOW).close()
    again = RunDirectory.open_existing(tmp_path / "run")
    again.discard()
    assert again.journal.is_dir()


def test_reopened_run_directory_keeps_its_run_id():
    run = RunDirectory.create(None, NOW)
    run.point_latest()
    run.close()
    again = RunDirectory.open_existing(resolve_run("latest"))
    assert again.run_id == run.run_id
    again.close()


def test_temporary_files_of_dead_processes_are_removed_on_resume():
    run = RunDirectory.create(None, NOW)
    run.close()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = run.path / f".assignment.json.{gone.pid}.tmp"
    in_use = run.path / f".results.parquet.{os.getpid()}.tmp"
    users = [run.path / ".notes.tmp", run.path / ".bashrc"]
    for path in (left, in_use, *users):
        path.touch()
    RunDirectory.open_existing(run.path).close()
    assert not left.exists()
    assert all(path.exists() for path in (in_use, *users))


def test_resolve_run_names_the_paths_that_it_tried(tmp_path):
    run = RunDirectory.create(tmp_path / "elsewhere", NOW)
    run.point_latest()
    run.close()
    shutil.rmtree(run.path)
    with pytest.raises(ConfigError, match=r"no run found at .*latest"):
        resolve_run("latest")
    with pytest.raises(ConfigError, match=r"no run found at nowhere or .*nowhere"):
        resolve_run("nowhere")
    with pytest.raises(ConfigError, match="contains no run"):
        RunDirectory.open_existing(tmp_path)


def planned(*models, n=2):
    return [
        msgspec.structs.replace(
            case(at, f"{model}{at}"), nodeid=f"t.py::test_it[{model}-{at}]", model=model
        )
        for model in models
        for at in range(n)
    ]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            planned("a", "c"),
            "(4 then, 4 now; missing: t.py::test_it[b-0] and 1 more; new: "
            "t.py::test_it[c-0] and 1 more): use the same suite",
        ),
        (
            planned("a", "b", n=1),
            "(4 then, 2 now; missing: t.py::test_it[a-1] and 1 more): use the same suite",
        ),
        (
            [msgspec.structs.replace(one, case_id="f" * 16) for one in planned("a", "b")],
            "although their names are the same: the run seed",
        ),
        (planned("a", "b" * 900), f"t.py::test_it[{'b' * 103}... and 1 more): use"),
    ],
    ids=["other model", "fewer", "other seed", "long names"],
)
def test_missing_cases_are_named(now, said):
    assert said in missing_message(planned("a", "b"), now)


def test_reordered_and_additional_cases_are_accepted():
    assert missing_message(planned("a", "b"), planned("b", "a", "c", n=3)) is None


def test_missing_or_foreign_cases_file_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="cannot read the planned cases"):
        read_cases(tmp_path)
    (tmp_path / "cases.json").write_text('[{"index": "no"}]')
    with pytest.raises(ResultsError, match="does not contain the planned cases"):
        read_cases(tmp_path)


def test_streamed_cases_are_read_during_the_run_after_a_crash_and_at_the_end(tmp_path):
    a, b, c = case(0, "aa"), case(1, "bb"), case(2, "cc")
    coming = ComingCases(tmp_path)
    assert read_cases(tmp_path) == []
    coming.add(a)
    coming.add(b)
    coming.write()
    coming.sync()
    assert read_cases(tmp_path) == [a, b]
    coming.add(c)
    assert coming.finish() == [a, b, c] == read_cases(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cases.json"]
    coming.close()
    killed = tmp_path / "killed"
    killed.mkdir()
    torn = ComingCases(killed)
    torn.add(a)
    torn.write()
    torn.close()
    with (killed / "cases.jsonl").open("ab") as file:
        file.write(b'{"index": 1, "ca')
    assert read_cases(killed) == [a]
    path = killed / "cases.jsonl"
    whole, _, _ = path.read_bytes().partition(b"\n")
    path.write_bytes(whole[18:] + b"\n")
    assert read_cases(killed) == [a], "written by an earlier version"
    path.write_bytes(whole.replace(b'"index":0', b'"index":1') + b"\n")
    with pytest.raises(ResultsError, match="is damaged in line 1"):
        read_cases(killed)


def test_suite_digest_depends_on_the_cases_and_not_on_their_order():
    a, b, c = case(0, "aa"), case(1, "bb"), case(2, "cc")
    assert suite_digest([a, b]) == suite_digest([b, a])
    assert suite_digest([a, b]) != suite_digest([a, b, c])


def test_cases_of_the_first_writer_are_kept(tmp_path):
    first, second = [case(0, "aa"), case(1, "bb")], [case(0, "cc")]
    assert write_cases(tmp_path, first) == []
    assert write_cases(tmp_path, first) == []
    assert write_cases(tmp_path, second) == first
    assert read_cases(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == ["cases.json"]
