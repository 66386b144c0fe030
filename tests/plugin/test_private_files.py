"""Only the owner can read the files of a run: prompts, answers, names of keys."""

from __future__ import annotations

import os

import pytest

from pytest_ultrapar.session.selection import write_reused
from pytest_ultrapar.store.cases_file import Shared, write_shared
from tests.plugin.conftest import cases

SUITE = cases(6)


@pytest.fixture(autouse=True)
def open_umask():
    """Make new files readable by all users by default."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("storage", ["parquet", "json"])
def test_every_file_of_a_run_is_readable_by_its_owner_only(project, storage):
    project.suite(SUITE)
    args = ("--ultrapar-debug-log=all", f"--ultrapar-storage={storage}")
    assert project.run("-n0", *args).ret == 0
    files = [path for path in project.directory.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {
        "assignment.json",
        "cases.json",
        "manifest.json",
        "summary.json",
        "tables.json",
    } <= names
    assert {path.name: path.stat().st_mode & 0o077 for path in files} == dict.fromkeys(names, 0)
    folders = [path for path in project.directory.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o077 for path in [project.directory, *folders]} == {0}


def test_files_about_earlier_runs_are_readable_by_their_owner_only(tmp_path):
    write_shared(tmp_path, [Shared("s", ("c",))])
    write_reused(tmp_path, {("s", "m", 0, ()): "c"})
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"taken.json": 0o600, "reused.json": 0o600}
