"""Journals read for tests: whole, or one record at a position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.store.journal import JournalReader, decode_record, scan_segment, segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ultrapar.records import JournalRecord
    from pytest_ultrapar.store.journal import Damage, Position
    from pytest_ultrapar.store.journal_history import JournalHistory


def scan_journal(directory: Path) -> Iterator[tuple[Position, JournalRecord | Damage]]:
    """The records of all segments, in the order of the segments' names."""
    for path in segments(directory):
        yield from scan_segment(path, decode_record)


def read_at(directory: Path, position: Position) -> JournalRecord:
    """The record at `position`."""
    reader = JournalReader(directory)
    try:
        return reader.read(position)
    finally:
        reader.close()


def find_finished(history: JournalHistory) -> dict[str, Position]:
    """The last finished episode of each case, as workers find it."""
    return {
        case_id: case.finished[-1].position
        for case_id, case in history.cases.items()
        if case.finished
    }
