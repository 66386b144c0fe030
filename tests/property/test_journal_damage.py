"""A journal is read correctly after any cut or change of its file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.records import EpisodeEnded, EpisodeStarted, Grade, TurnMessage
from pytest_ultrapar.store.journal import (
    Damage,
    JournalWriter,
    decode_record,
    scan_segment,
    segments,
)
from tests.examples import examples
from tests.journals import read_at, scan_journal

texts = st.text(st.characters(exclude_categories=()), max_size=40)


def records(n=3):
    for i in range(n):
        case_id = f"{i:016x}"
        yield EpisodeStarted(case_id, "gw0", i)
        yield EpisodeEnded(
            case_id,
            "gw0",
            "returned",
            i,
            i + 1,
            0.5,
            messages=[TurnMessage(0, "user", f"question {i}\nä\u2028")],
            n_turns=1,
        )
        yield Grade(case_id, "gw0", "solved", "passed", i, scores={"workflow": i / 7})


def write(directory, items):
    writer = JournalWriter(directory, "gw0", lambda data: data)
    positions = [writer.append(item) for item in items]
    writer.close()
    (path,) = segments(directory)
    return path, positions


def test_journal_truncated_at_every_byte_keeps_every_whole_record(tmp_path):
    written = list(records())
    path, positions = write(tmp_path, written)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = list(scan_segment(path, decode_record))
        n_whole = sum(position.offset + position.length <= size for position in positions)
        assert [item for _, item in found[:n_whole]] == written[:n_whole]
        assert len(found) == n_whole, size


def read(path):
    """The content of a file: whole records, and damaged parts."""
    found = [item for _, item in scan_segment(path, decode_record)]
    damage = [item for item in found if isinstance(item, Damage)]
    return [item for item in found if not isinstance(item, Damage)], damage


def test_journal_with_any_byte_flipped_loses_one_record_and_reports_it(tmp_path):
    written = list(records(2))
    path, positions = write(tmp_path, written)
    whole = path.read_bytes()
    assert sum(position.length for position in positions) == len(whole)
    with path.open("r+b", buffering=0) as file:
        for hit, position in enumerate(positions):
            last = position.offset + position.length - 1
            for place in range(position.offset, last + 1):
                for mask in {0x01, 0x20, 0x80, whole[place] ^ 0x0A} - {0}:
                    os.pwrite(file.fileno(), bytes([whole[place] ^ mask]), place)
                    good, damage = read(path)
                    if place == last:
                        assert good == written
                        assert damage or hit == len(written) - 1
                    else:
                        assert good == written[:hit] + written[hit + 1 :]
                        assert damage
                os.pwrite(file.fileno(), whole[place : place + 1], place)


@examples(60)
@given(st.binary(max_size=200), st.integers(0, 8))
def test_journal_reading_continues_after_garbage(garbage, where):
    with tempfile.TemporaryDirectory() as name:
        written = list(records())
        path, positions = write(Path(name), written)
        whole = path.read_bytes()
        cut = positions[where].offset
        path.write_bytes(whole[:cut] + garbage + b"\n" + whole[cut:])
        good, lost = read(path)
        assert good == written
        assert sum(damage.length for damage in lost) == len(garbage) + 1


@examples(100)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_journal_restores_any_text_that_utf8_can_encode(pairs):
    with tempfile.TemporaryDirectory() as name:
        written = [
            EpisodeEnded(f"{i:016x}", "gw0", "error", 0, 1, 0.0, detail=a, stdout=b)
            for i, (a, b) in enumerate(pairs)
        ]
        _, positions = write(Path(name), written)
        for position, record in zip(positions, written, strict=True):
            back = read_at(Path(name), position)
            for was, now in ((record.detail, back.detail), (record.stdout, back.stdout)):
                assert now == was.encode("utf-8", "backslashreplace").decode()
        assert len(list(scan_journal(Path(name)))) == len(written)
