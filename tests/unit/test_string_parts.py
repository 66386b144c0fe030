"""Long strings of a run are stored once, completely or not at all, and without secrets."""

from __future__ import annotations

import errno
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.exchanges import part_name
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.store.string_parts import PartWriter, read_part
from pytest_ultrapar.system.disk import Disk

IMAGE = b"data:image/png;base64," + b"iVBORw0KGgo" * 2_000
KEY = "sk-canary-7f3a9c1e5b"


def unchanged(data):
    return data


def files(directory):
    return {path.name: path.read_bytes() for path in (directory / "parts").iterdir()}


def test_part_is_stored_once_by_its_content(tmp_path):
    one, other = PartWriter(tmp_path, unchanged), PartWriter(tmp_path, unchanged)
    assert {one.keep(IMAGE), one.keep(IMAGE), other.keep(IMAGE)} == {part_name(IMAGE)}
    assert files(tmp_path) == {part_name(IMAGE): IMAGE}
    assert (tmp_path / "parts").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "parts" / part_name(IMAGE)).stat().st_mode & 0o777 == 0o600
    one.sync()
    other.sync()
    assert read_part(tmp_path, part_name(IMAGE)) == IMAGE


PROGRAM = """
import sys
from pathlib import Path
from pytest_ultrapar.store.string_parts import PartWriter
writer = PartWriter(Path(sys.argv[1]), lambda data: data)
print("ready", flush=True)
sys.stdin.readline()
for n in range(40):
    writer.keep(b"part %d " % n * 5_000)
writer.sync()
"""


def test_processes_that_store_the_same_parts_concurrently_leave_whole_files(tmp_path):
    def one_of_them(_):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            child.stdout.readline()
            return child.communicate(b"go\n")[0], child.returncode

    with ThreadPoolExecutor(3) as pool:
        assert [code for _, code in pool.map(one_of_them, range(3))] == [0] * 3
    found = files(tmp_path)
    assert len(found) == 40
    assert all(part_name(content) == name for name, content in found.items())


def test_part_is_named_after_its_redacted_content(tmp_path):
    writer = PartWriter(tmp_path, Redactor([KEY]).bytes)
    name = writer.keep(IMAGE + KEY.encode())
    assert name == writer.keep(IMAGE + KEY.encode())
    assert read_part(tmp_path, name) == IMAGE + b"***"
    assert name == part_name(IMAGE + b"***")


def test_part_cut_off_by_a_power_failure_is_detected_and_written_again(tmp_path):
    name = PartWriter(tmp_path, unchanged).keep(IMAGE)
    path = tmp_path / "parts" / name
    path.write_bytes(IMAGE[:100])
    with pytest.raises(ResultsError, match="is damaged"):
        read_part(tmp_path, name)
    PartWriter(tmp_path, unchanged).keep(IMAGE)
    assert read_part(tmp_path, name) == IMAGE


def test_missing_part_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot read .*abc: No such file"):
        read_part(tmp_path, "abc")


def test_failed_write_of_a_part_ends_the_run_and_not_the_episode(tmp_path, monkeypatch):
    writer = PartWriter(tmp_path, unchanged)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "open_fd", full)
    assert writer.keep(IMAGE) == part_name(IMAGE)
    monkeypatch.undo()
    with pytest.raises(ResultsError, match="No space left on device"):
        writer.sync()


def test_part_without_a_run_directory_ends_the_run(tmp_path):
    writer = PartWriter(tmp_path / "gone", unchanged)
    writer.keep(IMAGE)
    with pytest.raises(ResultsError, match=r"gone.*No such file"):
        writer.sync()
