"""`ultrapar runs` and `ultrapar clean` on folders of runs of every kind."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.browse.clean_command import chosen
from pytest_ultrapar.report.browse.run_folder import FoundRun
from pytest_ultrapar.store.manifest import FILE_NAME, read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory, remove_run
from pytest_ultrapar.store.run_lock import LOCK_NAME
from tests.unit.compared_runs import write_run
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal

DAY = timedelta(days=1)


def killed_run(path):
    """A run of three cases, two of them with a grade, without tables."""
    run = make_run(path, [case(index) for index in range(3)], simulated=False)
    write_journal(run, "gw0", episode(0, 1, 2), grade(0), episode(1, 1, 2), grade(1, "unsolved"))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    outcomes = {"alpha": ["solved", "solved", "solved", "unsolved"]}
    write_run(folder / "whole", outcomes, started_at=NOW - 3 * DAY)
    write_run(folder / "stopped", {"alpha": ["solved", None]}, started_at=NOW - DAY)
    killed_run(folder / "killed")
    return folder


@pytest.fixture
def folder(written, tmp_path, monkeypatch):
    copy = tmp_path / "runs"
    shutil.copytree(written, copy, symlinks=True)
    monkeypatch.chdir(tmp_path)
    return copy


@pytest.fixture
def runs(ultrapar):
    """The rows of `ultrapar runs --json`, by the name of the run."""

    def call(folder):
        code, out, err = ultrapar("runs", str(folder), "--json")
        assert (code, err) == (0, "")
        return {one["name"]: one for one in map(json.loads, out.splitlines())}

    return call


def there(folder):
    return sorted(path.name for path in folder.iterdir())


# -- runs ------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first(folder, ultrapar):
    code, out, err = ultrapar("runs", "runs")
    assert (code, err) == (0, "")
    head, *lines, last = out.splitlines()
    assert head.split() == [
        *("run", "state", "started", "(UTC)", "cases", "solved", "session", "cost", "size")
    ]
    cells = [line.split("  ") for line in lines]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in cells]
    assert [row[:5] for row in rows] == [
        ["killed", "interrupted", "2030-01-02 03:04", "2/3", "50.0 %"],
        ["stopped", "interrupted, SIMULATED", "2030-01-01 03:04", "1/2", "100.0 %"],
        ["whole", "complete, SIMULATED", "2029-12-30 03:04", "4/4", "75.0 %"],
    ]
    assert last.startswith("3 runs, ")


def test_json_has_a_run_in_each_line(folder, runs):
    found = runs(folder)
    whole = found["whole"]
    assert whole["cases"] == {"planned": 4, "final": 4, "graded": 4, "solved": 3, "scored": 0}
    assert whole["directory"] == str(folder / "whole")
    assert whole["simulated"] is True
    files = [path for path in (folder / "whole").rglob("*") if path.is_file()]
    assert whole["bytes"] == sum(path.stat().st_size for path in files)
    assert found["killed"]["duration_s"] is None
    assert found["killed"]["cost"] is None


def test_run_in_progress_is_counted_with_its_finished_cases(folder, runs):
    going_on = RunDirectory.open_existing(folder / "killed")
    try:
        found = runs(folder)["killed"]
    finally:
        going_on.close()
    assert found["verdict"] == "running"
    assert found["cases"]["graded"] == 2


@pytest.mark.parametrize(
    ("file", "verdict"),
    [(FILE_NAME, "damaged"), ("cases.json", "damaged"), ("summary.json", "damaged")],
)
def test_damaged_run_is_listed(folder, runs, file, verdict):
    (folder / "whole" / file).write_text("{")
    if file == "cases.json":
        (folder / "whole" / "summary.json").unlink()
    found = runs(folder)["whole"]
    assert (found["verdict"], found["cases"]) == (verdict, None)
    assert found["bytes"] > 0


def test_runs_of_benchmarks_are_listed_and_links_are_not(folder, runs):
    (folder / "bench-1").mkdir()
    (folder / "killed").rename(folder / "bench-1" / "ultra")
    (folder / "latest").symlink_to("whole")
    (folder / "notes").mkdir()
    (folder / "bench-1" / "linked").symlink_to(folder / "whole")
    assert [*runs(folder)] == ["bench-1/ultra", "stopped", "whole"]


@pytest.mark.parametrize("command", [("runs",), ("clean", "--keep", "1")])
def test_wrong_folder_is_refused_in_one_sentence(folder, ultrapar, command):
    name, *rest = command
    said = f"ultrapar {name}: error: cannot list the runs in .ultrapar: No such file or directory\n"
    assert ultrapar(name, *rest) == (4, "", said)
    for run in ("whole", "latest"):
        (folder / "latest").unlink(missing_ok=True)
        (folder / "latest").symlink_to("whole")
        said = f"ultrapar {name}: error: runs/{run} is a run; pass the folder that contains it\n"
        assert ultrapar(name, f"runs/{run}", *rest) == (4, "", said)


@pytest.mark.parametrize("command", [("runs",), ("clean", "--keep", "0", "--yes")])
def test_empty_folder_name_is_refused(folder, refused, monkeypatch, command):
    # As with a shell variable that is not set.
    monkeypatch.chdir(folder)
    name, *rest = command
    assert "FOLDER is an empty string" in refused(name, "", *rest)
    assert (folder / "whole").is_dir()


# -- clean -----------------------------------------------------------------------------------------


def test_clean_without_yes_removes_nothing(folder, ultrapar):
    before = there(folder)
    code, out, _ = ultrapar("clean", "runs", "--keep", "1")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["stopped", "whole"]
    assert out.splitlines()[-1].startswith("would remove 2 runs, ")
    assert out.endswith(" kB; add --yes to remove them\n")
    assert there(folder) == before


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (("--keep", "1"), ["killed"]),
        (("--keep", "0"), []),
        (("--keep", "9"), ["killed", "stopped", "whole"]),
        (("--interrupted",), ["whole"]),
        (("--interrupted", "--keep", "1"), ["killed", "whole"]),
    ],
)
def test_clean_removes_runs_that_match_all_rules(folder, ultrapar, rules, left):
    code, out, err = ultrapar("clean", "runs", *rules, "--yes")
    assert (code, err) == (0, "")
    assert there(folder) == left
    last = out.splitlines()[-1]
    n_removed = 3 - len(left)
    assert last.startswith(f"removed {n_removed} run" if n_removed else "nothing to remove among 3")


def test_age_is_measured_from_the_last_session(folder, ultrapar):
    for name, days in (("whole", 40), ("stopped", 31), ("killed", 29)):
        manifest = msgspec.structs.replace(
            read_manifest(folder / name), started_at=datetime.now(UTC) - days * DAY
        )
        write_manifest(folder / name, manifest)
    assert ultrapar("clean", "runs", "--older-than", "30d", "--yes")[0] == 0
    assert there(folder) == ["killed"]


def test_runs_in_use_are_kept(folder, ultrapar):
    going_on = RunDirectory.open_existing(folder / "killed")
    try:
        assert ultrapar("clean", "runs", "--keep", "0", "--yes")[0] == 0
    finally:
        going_on.close()
    assert there(folder) == ["killed"]


@pytest.mark.parametrize("lock", ["run.lock", "compact.lock"])
def test_locked_run_is_kept_and_named(folder, ultrapar, lock):
    with (folder / "whole" / lock).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        code, out, err = ultrapar("clean", "runs", "--keep", "0", "--yes")
    assert (code, err) == (4, f"ultrapar clean: {folder}/whole is in use; it was not removed\n")
    assert there(folder) == ["whole"]
    assert (folder / "whole" / "results.parquet").exists()
    assert "removed 2 runs, " in out


def test_clean_removes_only_runs_of_the_folder(folder, ultrapar, tmp_path):
    outside = tmp_path / "outside"
    (folder / "killed").rename(outside)
    (folder / "linked").symlink_to(outside)
    (folder / "latest").symlink_to("stopped")
    (folder / "notes").mkdir()
    (folder / "notes" / "run.txt").write_text("mine")
    (folder / "file").write_text("mine")
    fake = folder / "fake"
    fake.mkdir()
    (fake / LOCK_NAME).symlink_to(outside / LOCK_NAME)
    (folder / "empty-lock").mkdir()
    (folder / "empty-lock" / LOCK_NAME).write_text("")
    (folder / "bench-1").mkdir()
    shutil.copytree(folder / "whole", folder / "bench-1" / "ultra")
    # A link in a run is removed, and its target is not.
    (folder / "whole" / "data").symlink_to(outside)
    (folder / "whole" / "journal" / "note").symlink_to(outside / LOCK_NAME)
    before = sorted(outside.rglob("*"))
    assert ultrapar("clean", "runs", "--keep", "0", "--yes")[0] == 0
    # `latest` pointed to a removed run.
    assert there(folder) == ["bench-1", "empty-lock", "fake", "file", "linked", "notes"]
    assert sorted(outside.rglob("*")) == before
    assert ultrapar("clean", "runs/bench-1", "--keep", "0", "--yes")[0] == 0
    assert there(folder / "bench-1") == []


@pytest.mark.parametrize("is_in_use", [True, False])
def test_run_that_contains_another_run_is_kept(folder, ultrapar, is_in_use):
    below = RunDirectory.create(folder / "whole" / "more" / "below", NOW)
    if not is_in_use:
        below.close()
    code, _, err = ultrapar("clean", "runs", "--keep", "0", "--yes")
    below.close()
    assert code == 4
    assert err == (
        f"ultrapar clean: {folder}/whole was not removed: it contains another run, "
        f"{folder}/whole/more/below\n"
    )
    assert (folder / "whole" / "results.parquet").exists()


def test_run_used_after_the_search_is_kept(folder):
    seen_at = datetime.now(UTC)
    os.utime(folder / "killed" / LOCK_NAME, (seen_at.timestamp() + 1,) * 2)
    with pytest.raises(
        ConfigError, match="killed was used after it was selected for removal; it was not removed"
    ):
        remove_run(folder / "killed", seen_at)
    assert (folder / "killed" / FILE_NAME).exists()


def test_latest_link_to_another_place_is_kept(folder, ultrapar, tmp_path):
    (folder / "latest").symlink_to(tmp_path / "unmounted")
    assert ultrapar("clean", "runs", "--keep", "1", "--yes")[0] == 0
    assert there(folder) == ["killed", "latest"]


def test_run_that_cannot_be_removed_is_named_and_removed_next_time(folder, ultrapar, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "part")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    code, _, err = ultrapar("clean", "runs", "--keep", "2", "--yes")
    assert code == 4
    assert err == f"ultrapar clean: cannot remove {folder}/whole: part: Permission denied\n"
    monkeypatch.undo()
    monkeypatch.chdir(folder.parent)
    assert ultrapar("clean", "runs", "--keep", "2", "--yes")[0] == 0
    assert there(folder) == ["killed", "stopped"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "no rule is given: add --keep N, --older-than AGE or --interrupted"),
        (("--keep=-1",), "--keep: '-1' is not a number of runs; write a whole number such as 10"),
        (
            ("--keep", "two"),
            "--keep: 'two' is not a number of runs; write a whole number such as 10",
        ),
        *[
            (
                ("--older-than", age),
                f"--older-than: {age!r} is not an age; "
                "write hours, days or weeks, such as 12h, 30d or 8w",
            )
            for age in ("30", "1m", "", "1.5d", "99999w")
        ],
    ],
)
def test_invalid_rule_removes_nothing(folder, refused, words, sentence):
    before = there(folder)
    assert refused("clean", "runs", "--yes", *words).endswith(f"{sentence}\n")
    assert there(folder) == before


found_runs = st.lists(
    st.builds(
        lambda number, verdict, age: FoundRun(
            name=f"r{number}",
            directory=f"/r{number}",
            run_id=f"r{number}",
            verdict=verdict,
            started_at=NOW - timedelta(hours=age),
        ),
        st.integers(0, 999),
        st.sampled_from(["complete", "interrupted", "running", "damaged"]),
        st.integers(0, 100),
    ),
    unique_by=lambda run: run.run_id,
    max_size=12,
)


@given(
    found_runs,
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 100),
    st.booleans(),
)
def test_chosen_runs_match_every_rule_and_are_not_the_newest(runs, keep, hours, interrupted):
    older_than = None if hours is None else timedelta(hours=hours)
    runs.sort(key=lambda run: run.started_at, reverse=True)
    going = chosen(runs, NOW, keep=keep, older_than=older_than, interrupted=interrupted)
    stay = [run for run in runs if run not in going]
    assert len(stay) >= min(len(runs), keep or 0)
    for run in going:
        assert run.verdict != "running"
        assert run.verdict == "interrupted" or not interrupted
        assert older_than is None or NOW - run.started_at > older_than
        n_newer = sum(other.started_at >= run.started_at for other in runs if other is not run)
        assert keep is None or n_newer >= keep
    if keep is None and older_than is None and not interrupted:
        assert all(run.verdict == "running" for run in stay)


def test_run_that_ended_before_its_first_case_is_interrupted(folder, runs):
    RunDirectory.create(folder / "begun", NOW).close()
    assert runs(folder)["begun"]["verdict"] == "interrupted"
