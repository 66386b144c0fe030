"""The journal: what a run has paid for, on disk before anything else is done with it.

Each process that runs episodes appends to a file of its own, a segment, so that no two processes
ever write into one. A segment has one record per line: length and CRC-32 of the JSON text, both as
eight hex digits, and the text. So whatever becomes of a file, what is whole can be told from what
is not, and a line that was damaged does not cost the next one.

The first line says to which run a segment belongs: readers leave out the segments of other runs.
Segments of earlier versions do not say it.

A record has been handed to the system when `append` returns, which outlives the process but not a
power cut. `sync` is called once a second and outlives that, too: an `fdatasync` per record would
take milliseconds of each.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import msgspec
from msgspec.structs import replace

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.exchanges import ExchangeLog
from pytest_ultrapar.records import NO_VALUE, EpisodeEnded, EpisodeWentOn, Exchange, JournalRecord
from pytest_ultrapar.store.run_lock import read_holder
from pytest_ultrapar.system.disk import Disk
from pytest_ultrapar.system.files import cannot, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


T = TypeVar("T")
SEGMENT_PATTERN = re.compile(r"w-(?P<worker>\w+)-(?P<pid>\d+)-(?P<n>\d+)\.jsonl")


class Damage(msgspec.Struct, frozen=True):
    """A stretch of a segment that is no record although something was written there."""

    segment: str
    offset: int
    length: int
    reason: str


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a record stands: segment name, and offset and length of its line in bytes."""

    segment: str
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.segment} at byte {self.offset}"

    def damaged(self, reason: str) -> Damage:
        """What is said of it when no record is found there."""
        return Damage(self.segment, self.offset, self.length, reason)


class JournalWriter:
    """Appends to one new segment; for any thread of one process.

    After the first failed write or sync it refuses everything but `close`: a half-written line must
    stay the last one, and a second fsync may succeed although the first one lost data.

    Args:
        directory: The run's `journal/` directory, which exists; the lock beside it names the run.
        worker: xdist's worker id, or any word of letters, digits and underscores.
        redact: Takes known secrets out of UTF-8 text (`Redactor.bytes`).

    Raises:
        ResultsError: The segment cannot be made.
    """

    def __init__(self, directory: Path, worker: str, redact: Callable[[bytes], bytes]) -> None:
        self.segment, self._fd = _create_segment(directory, worker)
        self._path = (directory / self.segment).absolute()
        self._redact = redact
        self._encode = msgspec.json.Encoder().encode
        self._beginning = beginning_of(run_of(directory))
        self._offset = 0
        self._synced_offset = 0
        self._failure: str | None = None
        # Attempts and exchanges of episodes that went on, without secrets: a search takes three
        # times as long as all else here, and at the end only the others are searched.
        self._clean: dict[tuple[str, int], tuple[int, int]] = {}
        self._append_lock = threading.Lock()
        # Apart from the other lock: an fdatasync of some ms must not keep the engine waiting.
        self._sync_lock = threading.Lock()

    def append(self, record: JournalRecord) -> Position:
        """Write one record; when this returns, the record outlives this process.

        Raises:
            ResultsError: It could not be written whole, or an earlier write or sync failed.
        """
        return self.append_all([record])[0]

    def append_all(self, records: Sequence[JournalRecord]) -> list[Position]:
        """Write records one after the other; when this returns, they outlive this process.

        A record that JSON cannot hold raises what its encoder says, after all others were written:
        each of them was paid for.

        Raises:
            ResultsError: They could not be written whole, or an earlier write or sync failed.
        """
        lines = []
        unfit = None
        for record in records:
            try:
                lines.append(frame(self._payload(record)))
            except Exception as error:  # noqa: BLE001 - of msgspec or the redactor
                unfit = unfit or error
        positions = self._append_lines(lines)
        if unfit is not None:
            raise unfit
        return positions

    def _append_lines(self, lines: Sequence[bytes]) -> list[Position]:
        with self._append_lock:
            self._refuse_after_failure()
            # With the first record: an empty segment is of a run that never began.
            beginning = b"" if self._offset else self._beginning
            text = b"".join((beginning, *lines))
            try:
                # One call for all: a process that is killed leaves each line whole or not at all,
                # unless the disk is full.
                written = Disk.write(self._fd, text)
            except OSError as error:
                self._failure = f"cannot append {len(text)} bytes: {error.strerror}"
                raise ResultsError(self._refusal()) from error
            if written != len(text):
                self._failure = f"wrote {written} of {len(text)} bytes: is the disk full?"
                raise ResultsError(self._refusal())
            positions = []
            self._offset += len(beginning)
            for line in lines:
                positions.append(Position(self.segment, self._offset, len(line)))
                self._offset += len(line)
            return positions

    def sync(self) -> None:
        """Wait until everything appended so far is on the disk itself; called every second.

        Does nothing after `close`, which has synced.

        Raises:
            ResultsError: The disk says no, and what it still holds of this segment is unknown; or
                the segment is not in its place any more, and nobody would find what is appended.
        """
        with self._sync_lock:
            if self._fd < 0:
                return
            with self._append_lock:
                self._refuse_after_failure()
                # Read before the sync: what is appended during it may be on the disk or not.
                offset = self._offset
            self._refuse_when_gone()
            if offset == self._synced_offset:
                return
            try:
                Disk.fdatasync(self._fd)
            except OSError as error:
                self._failure = f"cannot sync: {error.strerror}"
                raise ResultsError(self._refusal()) from error
            self._synced_offset = offset

    def close(self) -> None:
        """Sync and close the segment, once; later calls do nothing.

        Raises:
            ResultsError: As `sync`; the segment is closed all the same.
        """
        try:
            if self._failure is None:
                self.sync()
        finally:
            with self._sync_lock, self._append_lock:
                if self._fd >= 0:
                    Disk.close(self._fd)
                self._fd = -1
                self._failure = self._failure or "it is closed"

    def _payload(self, record: JournalRecord) -> bytes:
        try:
            payload = self._encode(record)
        except UnicodeEncodeError:
            record = _map_text(record, without_surrogates)
            payload = self._encode(record)
        if self._holds_secret(record, payload):
            # Seldom, so it may cost: field by field, a secret such as `returned` or `12345678`
            # cannot break the JSON around it.
            payload = self._encode(_map_text(record, self._redact_text))
        if b"\n" in payload:
            # Only a value that the suite encoded itself may hold one.
            payload = msgspec.json.format(payload, indent=-1)
        return payload

    def _holds_secret(self, record: JournalRecord, payload: bytes) -> bool:
        if not isinstance(record, EpisodeEnded | EpisodeWentOn):
            return self._redact(payload) is not payload
        n, m = self._clean.pop(episode := (record.case_id, record.started_at_us), (0, 0))
        if isinstance(record, EpisodeEnded) and m:
            new = replace(record, attempts=record.attempts[n:], exchanges=record.exchanges[m:])
            payload = self._encode(new)
        holds = self._redact(payload) is not payload
        if isinstance(record, EpisodeWentOn) and not holds and m == record.n_before:
            self._clean[episode] = n + len(record.attempts), m + len(record.exchanges)
        return holds

    def _redact_text(self, text: str) -> str:
        return self._redact(text.encode()).decode()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise ResultsError(self._refusal())

    def _refuse_when_gone(self) -> None:
        # Whoever removes the run's directory leaves us a file without a name, to which one can
        # write and sync for ever without an error.
        try:
            is_here = os.path.samestat(Disk.stat(self._path), Disk.fstat(self._fd))
        except OSError:
            is_here = False
        if not is_here:
            self._failure = f"{self._path} is not there any more: is the run's directory gone?"
            raise ResultsError(self._refusal())

    def _refusal(self) -> str:
        return f"journal segment {self.segment} takes no more records: {self._failure}"


def _create_segment(directory: Path, worker: str) -> tuple[str, int]:
    # A resumed run may get a process id that was used before, and never continues a segment: its
    # last line may be torn.
    for n in count():
        name = f"w-{worker}-{os.getpid()}-{n}.jsonl"
        flags = os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        path = directory / name
        with cannot(f"make the journal segment {path}"), suppress(FileExistsError):
            return name, os.open(path, flags, 0o600)
    raise AssertionError


_MOST_OPEN = 64
"""Segments; a merged run has those of all workers of all hosts."""


class JournalReader:
    """Reads single records by position; keeps some segments it has read from open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fds: dict[str, int] = {}

    def read(self, position: Position) -> JournalRecord:
        """The record at `position`, after its checksum was found right.

        Raises:
            ResultsError: There is no such segment, or no whole record at that place.
        """
        try:
            return decode_record(self.payload(position))
        except msgspec.DecodeError as error:
            raise ResultsError(
                f"the journal record in {position} is of another version: {error}"
            ) from error

    def payload(self, position: Position) -> bytes:
        """Its JSON text, likewise.

        Raises:
            ResultsError: There is no such segment, or no whole record at that place.
        """
        try:
            line = Disk.pread(self._fd(position.segment), position.length, position.offset)
        except OSError as error:
            raise ResultsError(
                f"cannot read the journal record in {position}: {error.strerror}"
            ) from error
        payload = unframe(line)
        if payload is None:
            raise ResultsError(f"the journal record in {position} is damaged")
        return payload

    def close(self) -> None:
        """Close all segments."""
        for fd in self._fds.values():
            Disk.close(fd)
        self._fds.clear()

    def _fd(self, segment: str) -> int:
        fd = self._fds.get(segment)
        if fd is None:
            # Positions are read from files, and must not lead out of the journal.
            if not SEGMENT_PATTERN.fullmatch(segment):
                raise ResultsError(f"{segment!r} is no name of a journal segment")
            # A pipe is not waited for; what is read at a position of it fails.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            if len(self._fds) >= _MOST_OPEN:
                self.close()
            fd = self._fds[segment] = Disk.open_fd(self._directory / segment, flags)
        return fd


_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
decode_record = _decoder.decode
"""The record of one line's JSON; what is none, or of another version, is a `DecodeError`."""


class _Segment(msgspec.Struct, frozen=True, tag="run"):
    """The first line of a segment: whose it is."""

    run_id: str = ""


_OF_A_RUN = b'{"type":"run",'


def beginning_of(run_id: str) -> bytes:
    """The first line of a segment of a run; none where its id is not known."""
    return frame(msgspec.json.encode(_Segment(run_id))) if run_id else b""


def run_of(journal: Path) -> str:
    """Id of the run that a journal belongs to, by the lock beside it; empty without one."""
    holder = read_holder(journal.absolute().parent)
    return "" if holder is None else holder.run_id


_BROKEN = "the checksum or the form of this line is wrong"


def scan_segment(
    path: Path, decode: Callable[[bytes], T], *, at: int = 0
) -> Iterator[tuple[Position, T | Damage]]:
    """The records of one segment, in the order written, with one line in memory at a time.

    A last line that ends before its line feed is torn: whoever wrote it died while writing, and
    nobody was told that it is there. It is left out. Every other stretch that is no whole record
    comes as `Damage`, as does a whole record that cannot be understood (written by another version)
    and the rest of a file that cannot be read; the line after a damaged one is found again. What
    follows the first line of another run's segment is one `Damage`.

    Args:
        path: The segment.
        decode: Makes of a line's JSON what is wanted of it, or raises `msgspec.DecodeError`.
        at: Byte at which the first line that is wanted begins.
    """
    own, name = "", path.name
    try:
        with open_file(path) as file:
            file.seek(at)
            line = file.readline()
            while line:
                payload = _leading_payload(line)
                if payload is None and not line.endswith(b"\n"):
                    return
                length = len(line) if payload is None else len(payload) + _OVERHEAD
                position = Position(name, at, length)
                if payload is None:
                    yield position, position.damaged(_BROKEN)
                elif payload.startswith(_OF_A_RUN):
                    other = msgspec.json.decode(payload, type=_Segment).run_id
                    own = own or run_of(path.parent) or other
                    if other != own:
                        rest = Position(name, at, file.seek(0, os.SEEK_END) - at)
                        yield rest, rest.damaged(f"left out: it is of run {other}, this is {own}")
                        return
                else:
                    try:
                        yield position, decode(payload)
                    except msgspec.DecodeError as error:
                        yield position, position.damaged(f"not understood: {error}")
                at += length
                if payload is not None and line[length - 1 : length] != b"\n":
                    # Only the line feed was changed: this line is good, the next hangs on to it.
                    feed = Position(name, at - 1, 1)
                    yield feed, feed.damaged(_BROKEN)
                line = line[length:] or file.readline()
    except OSError as error:
        rest = Position(name, at, 0)
        yield rest, rest.damaged(f"it cannot be read: {error.strerror}")


def segments(directory: Path) -> list[Path]:
    """The files of all segments, sorted by name.

    Raises:
        ResultsError: There is no such directory, or it cannot be read.
    """
    with cannot(f"read the journal {directory}"):
        return sorted(path for path in directory.iterdir() if SEGMENT_PATTERN.fullmatch(path.name))


def segment_size(path: Path) -> int:
    """Bytes that a segment holds.

    Raises:
        ResultsError: It is not there any more, or cannot be asked.
    """
    with cannot(f"read {path}"):
        return path.lstat().st_size


def largest_sizes(directory: Path, known: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each segment of a journal when it was largest, by its name.

    The manifest keeps them: a file that is cut off after a line feed looks as whole as one that
    was never longer, and one that is gone cannot be told from one that never was.

    Args:
        directory: The journal.
        known: Sizes that segments once had, those that are gone among them.

    Raises:
        ResultsError: The directory, or a segment that it lists, cannot be read.
    """
    sizes = {path.name: segment_size(path) for path in segments(directory)}
    return {name: max(sizes.get(name, 0), known.get(name, 0)) for name in {**known, **sizes}}


def cut_off(directory: Path, known: Mapping[str, int]) -> list[Damage]:
    """What segments have lost at their ends, or as a whole.

    Args:
        directory: The journal.
        known: Sizes that segments once had, in bytes; they only grow.

    Raises:
        ResultsError: The directory, or a segment that it lists, cannot be read.
    """
    left = largest_sizes(directory, {})
    found = []
    for name, size in sorted(known.items()):
        if name not in left:
            found.append(Damage(name, 0, size, "the file is missing"))
        elif left[name] < size:
            found.append(Damage(name, left[name], size - left[name], "its end is missing"))
    return found


_HEADER_LENGTH = 18
_OVERHEAD = _HEADER_LENGTH + 1


def frame(payload: bytes) -> bytes:
    """The line of one JSON text.

    Args:
        payload: Without a line feed, and less than 4 GiB.
    """
    # One copy: sums would hold an answer of 10 MB twice more for a moment.
    return b"%b%b\n" % (_header(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a line that is whole and unchanged, else None.

    What stands in the place of the line feed does not matter: the checksum does not cover it.
    """
    payload = _leading_payload(line)
    return payload if payload is not None and len(line) == len(payload) + _OVERHEAD else None


def _leading_payload(line: bytes) -> bytes | None:
    payload = line[_HEADER_LENGTH:-1]
    if line.startswith(_header(payload)):
        return payload
    try:
        end = _HEADER_LENGTH + int(line[:8], 16)
    except ValueError:
        return None
    payload = line[_HEADER_LENGTH:end]
    # `int` takes signs, capitals and spaces; the header of what is there says all that is right.
    return payload if len(line) > end and line.startswith(_header(payload)) else None


def _header(payload: bytes) -> bytes:
    return b"%08x %08x " % (len(payload), crc32(payload))


_TEXTS = {"kind", "detail", "error", "reason", "labels", "messages", "scores", "stdout", "log"}


def _map_text(record: JournalRecord, change: Callable[[str], str]) -> JournalRecord:
    """The record with `change` applied to every text that a model, a suite or an exception wrote.

    Ids, times, endings, outcomes and the lanes of attempts stay as they are.
    """
    changed: dict[str, Any] = {}
    for field in msgspec.structs.fields(record):
        if field.name in _TEXTS:
            plain = msgspec.to_builtins(getattr(record, field.name))
            changed[field.name] = msgspec.convert(_map_strings(plain, change), field.type)
    if isinstance(record, EpisodeEnded):
        changed["value"] = _map_json(record.value, change) if record.value else NO_VALUE
        changed["exchanges"] = _map_exchanges(record.exchanges, change)
    elif isinstance(record, EpisodeWentOn):
        # They are parts of bodies that other records have: the episode's last record will do.
        changed["exchanges"] = []
    return msgspec.structs.replace(record, **changed)


def without_surrogates(text: str) -> str:
    r"""`text` with lone surrogates, which UTF-8 cannot hold, shown as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _map_exchanges(exchanges: Sequence[Exchange], change: Callable[[str], str]) -> list[Exchange]:
    """Exchanges with each body, as a whole, changed in its strings; it stays the JSON it was."""

    def body(text: str) -> str:
        try:
            return bytes(_map_json(msgspec.Raw(text.encode()), change)).decode()
        except (msgspec.DecodeError, RecursionError):
            return change(text)

    if not exchanges:
        return []
    log = ExchangeLog(_no_part, bytes)
    log.changed(exchanges, body)
    return log.noted


def _no_part(_: bytes) -> str:
    raise AssertionError


def _map_json(value: msgspec.Raw, change: Callable[[str], str]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(_map_strings(msgspec.json.decode(value), change)))


def _map_strings(value: object, change: Callable[[str], str]) -> object:
    match value:
        case str():
            return change(value)
        case list():
            return [_map_strings(item, change) for item in value]
        case dict():
            return {change(name): _map_strings(item, change) for name, item in value.items()}
        case _:
            return value
