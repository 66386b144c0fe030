"""Unreadable or unwritable files and wrong file types: one sentence with the path, no traceback.

Root may do everything, so tests of permissions run as the user `nobody`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.session.runtime import ASSIGNMENT_FILE, read_assignment
from pytest_ultrapar.store import parquet  # noqa: F401 - nobody may be unable to import it
from pytest_ultrapar.store.cases_file import TABLES_FILE, read_tables
from pytest_ultrapar.store.journal_history import (
    RecoveredIndex,
    find_started_not_ended,
    read_history,
    recover,
)
from pytest_ultrapar.store.run_directory import RunDirectory, new_directory, resolve_run
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal

NOBODY = 65534


@pytest.fixture
def folder():
    """A folder that every user can read, unlike pytest's `tmp_path`."""
    made = Path(tempfile.mkdtemp(prefix="ultrapar-test-"))
    made.chmod(0o755)
    yield made
    for path in (made, *made.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(made)


@pytest.fixture
def run(folder):
    made = make_run(folder / "run", [case(0), case(1)])
    write_journal(made, "gw0", episode(0, 1.0, 2.0), grade(0), episode(1, 1.0, 2.0), grade(1))
    made.close()
    for path in (folder / "run").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made


@contextmanager
def as_nobody():
    """Run a block without root's permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("locked", "mode", "named"),
    [
        ("run.lock", 0o000, "run.lock: Permission denied"),
        ("run.lock", 0o444, "run.lock: Permission denied"),
        (".", 0o000, "run.lock: Permission denied"),
    ],
)
def test_run_of_another_user_is_refused_and_named(run, locked, mode, named):
    (run.path / locked).chmod(mode)
    with as_nobody(), pytest.raises(ConfigError, match=named):
        RunDirectory.open_existing(resolve_run(str(run.path)))


def test_directory_elsewhere_needs_no_ultrapar_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ultrapar").touch()
    assert new_directory(tmp_path / "out", NOW).is_dir()
    with pytest.raises(ConfigError, match=r"\.ultrapar: File exists"):
        new_directory(None, NOW)


@pytest.mark.parametrize("is_locked_before", [False, True])
def test_compact_of_a_read_only_run_is_refused_with_its_path(run, is_locked_before):
    if is_locked_before:
        (run.path / "compact.lock").touch()
        (run.path / "compact.lock").chmod(0o666)
    run.path.chmod(0o555)
    with as_nobody(), pytest.raises(ResultsError, match="Permission denied") as refused:
        compact(run.path)
    assert str(run.path) in str(refused.value)


def _odd(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("gone")


@pytest.mark.parametrize("kind", ["directory", "dangling link"])
def test_segment_that_is_not_a_file_is_reported_as_damage(run, kind):
    _odd(run.journal / "w-gw7-1-0.jsonl", kind)
    history = read_history(run.journal)
    assert set(history.cases) == {"case0", "case1"}
    (damage,) = history.damage
    assert damage.segment == "w-gw7-1-0.jsonl"
    assert damage.reason.startswith("it cannot be read: ")
    assert find_started_not_ended(run.journal, "gw7") == set()
    assert set(recover(run.path)[0]) == {"case0", "case1"}


@pytest.mark.parametrize("kind", ["directory", "text"])
def test_unreadable_files_of_a_run_are_named(tmp_path, kind):
    for name in (ASSIGNMENT_FILE, TABLES_FILE, "recovered.jsonl"):
        if kind == "directory":
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text("no JSON")
    with pytest.raises(ResultsError, match=ASSIGNMENT_FILE):
        read_assignment(tmp_path)
    with pytest.raises(ResultsError, match=TABLES_FILE):
        read_tables(tmp_path)
    if kind == "directory":
        with pytest.raises(ResultsError, match=r"recovered\.jsonl: Is a directory"):
            RecoveredIndex(tmp_path)


def test_journal_that_is_a_file_is_named(folder, run):
    shutil.rmtree(run.journal)
    run.journal.write_text("")
    with pytest.raises(ConfigError, match=r"run/journal: File exists"):
        RunDirectory.open_existing(run.path)
