from __future__ import annotations

import errno
import os

import pytest

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import EpisodeEnded, EpisodeStarted, Grade
from pytest_ultrapar.store import journal as journal_module
from pytest_ultrapar.store import recovered
from pytest_ultrapar.store.journal import JournalWriter, Position, segments
from pytest_ultrapar.store.recovered import (
    GrowingJournal,
    RecoveredIndex,
    find_finished,
    find_started_not_ended,
    read_history,
)


def ended(case_id, ending, at_us=1):
    return EpisodeEnded(case_id, "gw0", ending, at_us, at_us + 1, 0.5)


def journal(directory, worker, *records):
    writer = JournalWriter(directory, worker, lambda data: data)
    positions = [writer.append(record) for record in records]
    writer.close()
    return positions


def test_recovered_is_seen_by_a_reader_that_was_there_before(tmp_path):
    worker, controller = RecoveredIndex(tmp_path), RecoveredIndex(tmp_path)
    assert worker.lookup("a") is None
    controller.add({"a": Position("w-gw0-1-0.jsonl", 10, 20)})
    controller.add({"b": Position("s", 1, 2), "c": Position("s", 3, 4)})
    assert worker.lookup("a") == Position("w-gw0-1-0.jsonl", 10, 20)
    assert worker.lookup("c") == Position("s", 3, 4)
    controller.add({"a": Position("w-gw1-1-0.jsonl", 0, 20)})
    assert worker.lookup("a") == Position("w-gw1-1-0.jsonl", 0, 20)
    assert RecoveredIndex(tmp_path).lookup("b") == Position("s", 1, 2)


def test_recovered_waits_for_the_rest_of_a_half_written_line(tmp_path):
    index = RecoveredIndex(tmp_path)
    index.add({"a": Position("s", 1, 2)})
    path = tmp_path / "recovered.jsonl"
    line = path.read_bytes()
    path.write_bytes(line[:15])
    late = RecoveredIndex(tmp_path)
    assert late.lookup("a") is None
    path.write_bytes(line)
    assert late.lookup("a") == Position("s", 1, 2)


def test_recovered_full_disk_is_a_clear_error(tmp_path, monkeypatch):
    def full(_fd, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    index = RecoveredIndex(tmp_path)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResultsError, match=r"cannot write recovered\.jsonl .*No space left"):
        index.add({"a": Position("s", 1, 2)})


@pytest.mark.parametrize(
    ("ending", "stands"),
    [
        ("returned", True),
        ("refused", True),
        ("error", True),
        ("skipped", True),
        ("infra", False),
        ("interrupted", False),
    ],
)
def test_find_finished_takes_endings_that_stand(tmp_path, ending, stands):
    (position,) = journal(tmp_path, "gw0", ended("a", ending))
    assert find_finished(read_history(tmp_path)) == ({"a": position} if stands else {})


def test_find_finished_takes_the_last_good_one_of_all_segments(tmp_path):
    journal(tmp_path, "gw1", ended("a", "returned", 10), ended("b", "error", 50))
    second = journal(
        tmp_path,
        "gw0",
        EpisodeStarted("a", "gw0", 19),
        ended("a", "returned", 20),
        ended("a", "interrupted", 30),
        Grade("a", "gw0", "solved", "passed", 31),
    )
    found = find_finished(read_history(tmp_path))
    assert found["a"] == second[1]
    assert found["b"].segment.startswith("w-gw1-")


def test_find_started_not_ended_names_the_suspects_of_one_worker(tmp_path):
    journal(
        tmp_path,
        "gw1",
        EpisodeStarted("a", "gw1", 1),
        EpisodeStarted("b", "gw1", 2),
        ended("a", "infra"),
    )
    journal(tmp_path, "gw11", EpisodeStarted("c", "gw11", 1))
    assert find_started_not_ended(tmp_path, "gw1") == {"b"}
    assert find_started_not_ended(tmp_path, "gw2") == set()


@pytest.mark.parametrize("ask", ["new", "lost"])
def test_segment_that_goes_while_a_growing_journal_is_read_is_named(tmp_path, monkeypatch, ask):
    def listed_and_removed(directory):
        found = segments(directory)
        for path in found:
            path.unlink()
        return found

    journal(tmp_path, "gw0", ended("a", "returned"))
    growing = GrowingJournal(tmp_path)
    for module in (recovered, journal_module):
        monkeypatch.setattr(module, "segments", listed_and_removed)
    with pytest.raises(ResultsError, match=r"cannot read .*w-gw0-.*\.jsonl: No such file"):
        list(growing.new()) if ask == "new" else growing.lost()
