from __future__ import annotations

import errno
import os
import threading

import msgspec
import pytest

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import EpisodeEnded, EpisodeStarted, Grade
from pytest_ultrapar.store.journal import (
    JournalReader,
    JournalWriter,
    segments,
)
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.system.disk import Disk
from tests.journals import read_at, scan_journal


def unchanged(data):
    return data


def ended(case_id="a" * 16, **fields):
    return EpisodeEnded(case_id, "gw0", "returned", 1, 2, 0.25, **fields)


def test_journal_append_returns_the_position_of_the_record(tmp_path):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    first = writer.append(EpisodeStarted("a" * 16, "gw0", 1))
    second = writer.append(ended(value=msgspec.Raw(b'{"ok":true}')))
    # Read while the writer is open, like the worker's main thread.
    reader = JournalReader(tmp_path)
    assert bytes(reader.read(second).value) == b'{"ok":true}'
    assert reader.read(first) == EpisodeStarted("a" * 16, "gw0", 1)
    reader.close()
    writer.close()


def test_journal_accepts_records_from_two_threads(tmp_path):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    kept = {}

    def write(name):
        for i in range(200):
            record = EpisodeStarted(f"{name}{i:015x}", "gw0", i)
            kept[writer.append(record)] = record

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert dict(scan_journal(tmp_path)) == kept
    assert len(kept) == 400


def test_journal_writes_many_records_in_one_write(tmp_path, monkeypatch):
    written = []
    real = os.write
    monkeypatch.setattr(Disk, "write", lambda fd, data: written.append(data) or real(fd, data))
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    records = [EpisodeStarted("a" * 16, "gw0", 1), ended("b" * 16), ended("c" * 16, stdout="x")]
    positions = writer.append_all(records)
    last = writer.append(ended("d" * 16))
    writer.close()
    assert len(written) == 2
    assert dict(scan_journal(tmp_path)) == {
        **dict(zip(positions, records, strict=True)),
        last: ended("d" * 16),
    }


def test_journal_record_that_cannot_be_encoded_loses_no_other_record(tmp_path):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    records = [ended("a" * 16), ended("b" * 16, detail=object()), ended("c" * 16)]
    with pytest.raises(TypeError, match="object"):
        writer.append_all(records)
    last = writer.append(ended("d" * 16))
    writer.close()
    kept = dict(scan_journal(tmp_path))
    assert [record.case_id[0] for record in kept.values()] == ["a", "c", "d"]
    assert kept[last].case_id == "d" * 16


def test_journal_short_write_is_an_error_and_final(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    writer.append(EpisodeStarted("a" * 16, "gw0", 1))
    real = os.write
    monkeypatch.setattr(Disk, "write", lambda fd, data: real(fd, data[:10]))
    with pytest.raises(ResultsError, match=r"wrote 10 of \d+ bytes: is the disk full"):
        writer.append(EpisodeStarted("b" * 16, "gw0", 2))
    monkeypatch.undo()
    with pytest.raises(ResultsError, match="accepts no more records: wrote 10"):
        writer.append(EpisodeStarted("c" * 16, "gw0", 3))
    writer.close()
    assert [item.case_id for _, item in scan_journal(tmp_path)] == ["a" * 16]


def test_journal_failed_sync_is_final(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    writer.append(ended())

    def broken(_fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Disk, "fdatasync", broken)
    with pytest.raises(ResultsError, match="cannot sync"):
        writer.sync()
    monkeypatch.undo()
    with pytest.raises(ResultsError, match="cannot sync"):
        writer.sync()
    with pytest.raises(ResultsError, match="cannot sync"):
        writer.append(ended())
    writer.close()


def test_journal_syncs_only_new_records(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    synced = []
    monkeypatch.setattr(Disk, "fdatasync", synced.append)
    writer.sync()
    assert synced == []
    writer.append(ended())
    writer.sync()
    writer.sync()
    assert len(synced) == 1
    writer.close()


def test_journal_secret_is_redacted_without_breaking_the_record(tmp_path):
    # These values are also parts of the record: an ending, a field name, a time.
    secrets = ["returned", "messages", "12345678", 'sk-"quoted"-ä']
    redactor = Redactor(secrets)
    writer = JournalWriter(tmp_path, "gw0", redactor.bytes)
    record = EpisodeEnded(
        "a" * 16,
        "gw0",
        "returned",
        12345678_000000,
        12345678_000001,
        0.5,
        value=msgspec.Raw(msgspec.json.encode({"key returned": ['sk-"quoted"-ä', 12345678]})),
        stdout="the messages say 12345678",
        detail='key sk-"quoted"-ä',
    )
    position = writer.append(record)
    writer.close()
    back = read_at(tmp_path, position)
    assert back.ending == "returned"
    assert back.started_at_us == 12345678_000000
    assert back.stdout == "the *** say ***"
    assert back.detail == "key ***"
    assert msgspec.json.decode(back.value) == {"key ***": ["***", 12345678]}


def test_journal_grade_contains_no_secret_and_no_surrogate(tmp_path):
    writer = JournalWriter(tmp_path, "gw0", Redactor(["sk-secret-of-the-pool"]).bytes)
    given = "half \ud83d of sk-secret-of-the-pool"
    position = writer.append(
        Grade("a" * 16, "gw0", "solved", "passed", 1, reason=given, labels={given: given})
    )
    writer.close()
    back, shown = read_at(tmp_path, position), "half \\ud83d of ***"
    assert (back.reason, back.labels) == (shown, {shown: shown})


def test_journal_value_with_line_feeds_is_one_line(tmp_path):
    writer = JournalWriter(tmp_path, "gw0", unchanged)
    position = writer.append(ended(value=msgspec.Raw(b'{\n "a": 1\n}')))
    writer.close()
    assert segments(tmp_path)[0].read_bytes().count(b"\n") == 1
    assert msgspec.json.decode(read_at(tmp_path, position).value) == {"a": 1}


def test_journal_unwritable_directory_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="cannot create the journal segment"):
        JournalWriter(tmp_path / "missing", "gw0", unchanged)
