"""The journal: all paid answers of a run. They are written to disk before they are used.

Each process that runs episodes appends to its own file, a segment, so two processes never write to
the same file. Each line of a segment is one record. It consists of eight hex digits for the length
of the JSON text, eight for its CRC-32, and the text itself. So readers can tell damaged records
from whole ones, and a damaged line does not affect the next one.

The first line names the segment's run: readers skip the segments of other runs. Segments of earlier
versions do not have this line.

When `append` returns, the operating system has the record. The record then survives the end of the
process, but not a power loss. `sync` is called once a second, and synced records survive a power
loss, too. An `fdatasync` for each record would take milliseconds.
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
from pytest_ultrapar.records import NO_VALUE, EpisodeEnded, EpisodeProgress, Exchange, JournalRecord
from pytest_ultrapar.store.run_lock import read_holder
from pytest_ultrapar.system.disk import Disk
from pytest_ultrapar.system.files import cannot, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


T = TypeVar("T")
SEGMENT_PATTERN = re.compile(r"w-(?P<worker>\w+)-(?P<pid>\d+)-(?P<n>\d+)\.jsonl")


class Damage(msgspec.Struct, frozen=True):
    """A stretch of a segment that was written, but is now missing or is not a usable record."""

    segment: str
    offset: int
    length: int
    reason: str


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The place of a record: the name of its segment, and its line's offset and length in bytes."""

    segment: str
    offset: int
    length: int

    def __str__(self) -> str:
        return f"{self.segment} at byte {self.offset}"

    def damaged(self, reason: str) -> Damage:
        """Return the damage to report if the record at this place cannot be used."""
        return Damage(self.segment, self.offset, self.length, reason)


class JournalWriter:
    """Appends to one new segment. Any thread of the process may use it.

    After the first failed write or sync, the writer refuses everything except `close`. One reason
    is that a half-written line must remain the segment's last line. The other is that a second
    fsync may succeed although the first one lost data.

    Args:
        directory: The run's `journal/` directory. It must exist, and the lock file next to it names
            the run.
        worker: xdist's worker id, or any name that consists of letters, digits and underscores.
        redact: Removes known secrets from UTF-8 text (`Redactor.bytes`).

    Raises:
        ResultsError: The segment cannot be created.
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
        # How many attempts and exchanges of an unfinished episode have been searched for secrets.
        # The search takes three times as long as everything else, so the final record is searched
        # only from there on.
        self._clean: dict[tuple[str, int], tuple[int, int]] = {}
        self._append_lock = threading.Lock()
        # Separate from the other lock: an fdatasync takes some ms, and must not block the engine.
        self._sync_lock = threading.Lock()

    def append(self, record: JournalRecord) -> Position:
        """Write one record; when this returns, the record survives the end of this process.

        Raises:
            ResultsError: The record could not be written completely, or an earlier write or sync
                failed.
        """
        return self.append_all([record])[0]

    def append_all(self, records: Sequence[JournalRecord]) -> list[Position]:
        """Write records in the given order; on return, they survive the end of this process.

        If a record cannot be encoded as JSON, all other records are still written, because they
        were paid for. Then the first such error is raised.

        Raises:
            ResultsError: The records could not be written completely, or an earlier write or sync
                failed.
        """
        lines = []
        unfit = None
        for record in records:
            try:
                lines.append(frame(self._payload(record)))
            except Exception as error:  # noqa: BLE001 - an error of msgspec or the redactor
                unfit = unfit or error
        positions = self._append_lines(lines)
        if unfit is not None:
            raise unfit
        return positions

    def _append_lines(self, lines: Sequence[bytes]) -> list[Position]:
        with self._append_lock:
            self._refuse_after_failure()
            # Written with the first record: an empty segment belongs to a run that never began.
            beginning = b"" if self._offset else self._beginning
            text = b"".join((beginning, *lines))
            try:
                # Use one call for all lines: if the process is killed, each line is complete or
                # missing, unless the disk is full.
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
        """Wait until all appended records are on disk. This is called once a second.

        After `close`, which also syncs, this does nothing.

        Raises:
            ResultsError: The disk reports an error, so the content of this segment is unknown. Or
                the segment was moved or removed, so that records appended to it would be lost.
        """
        with self._sync_lock:
            if self._fd < 0:
                return
            with self._append_lock:
                self._refuse_after_failure()
                # Read before the sync: records appended during the sync may or may not be on disk.
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
        """Sync and close the segment; later calls do nothing.

        Raises:
            ResultsError: As for `sync`; the segment is closed anyway.
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
            # This is rare, so it may be slow. Redacting single fields keeps the JSON valid, even
            # for a secret such as `returned` or `12345678`.
            payload = self._encode(_map_text(record, self._redact_text))
        if b"\n" in payload:
            # Only a value that the suite encoded itself may contain a line feed.
            payload = msgspec.json.format(payload, indent=-1)
        return payload

    def _holds_secret(self, record: JournalRecord, payload: bytes) -> bool:
        if not isinstance(record, EpisodeEnded | EpisodeProgress):
            return self._redact(payload) is not payload
        n, m = self._clean.pop(episode := (record.case_id, record.started_at_us), (0, 0))
        if isinstance(record, EpisodeEnded) and m:
            new = replace(record, attempts=record.attempts[n:], exchanges=record.exchanges[m:])
            payload = self._encode(new)
        holds = self._redact(payload) is not payload
        if isinstance(record, EpisodeProgress) and not holds and m == record.n_before:
            self._clean[episode] = n + len(record.attempts), m + len(record.exchanges)
        return holds

    def _redact_text(self, text: str) -> str:
        return self._redact(text.encode()).decode()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise ResultsError(self._refusal())

    def _refuse_when_gone(self) -> None:
        # If the run's directory is removed, the file continues to exist without a name, so writes
        # and syncs still succeed.
        try:
            is_here = os.path.samestat(Disk.stat(self._path), Disk.fstat(self._fd))
        except OSError:
            is_here = False
        if not is_here:
            self._failure = f"{self._path} is gone: was the run's directory removed?"
            raise ResultsError(self._refusal())

    def _refusal(self) -> str:
        return f"journal segment {self.segment} accepts no more records: {self._failure}"


def _create_segment(directory: Path, worker: str) -> tuple[str, int]:
    # A resumed run may get a process id that was used before. It never continues an old segment,
    # because the last line may be incomplete.
    for n in count():
        name = f"w-{worker}-{os.getpid()}-{n}.jsonl"
        flags = os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        path = directory / name
        with cannot(f"create the journal segment {path}"), suppress(FileExistsError):
            return name, os.open(path, flags, 0o600)
    raise AssertionError


_MOST_OPEN = 64
"""How many segments a reader keeps open at most. A merged run can have far more: one or several
from each worker on each host."""


class JournalReader:
    """Reads single records by position, and keeps segments open between reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fds: dict[str, int] = {}

    def read(self, position: Position) -> JournalRecord:
        """Read the record at `position` and verify its checksum.

        Raises:
            ResultsError: There is no such segment, or no whole record of this version at that
                place.
        """
        try:
            return decode_record(self.payload(position))
        except msgspec.DecodeError as error:
            raise ResultsError(
                f"the journal record in {position} is from another version: {error}"
            ) from error

    def payload(self, position: Position) -> bytes:
        """Read the JSON text of the record at `position`, and verify its checksum.

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
            # Positions come from files, and must not refer to files outside the journal.
            if not SEGMENT_PATTERN.fullmatch(segment):
                raise ResultsError(f"{segment!r} is not the name of a journal segment")
            # Do not wait for a pipe: reading from a position in a pipe fails.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            if len(self._fds) >= _MOST_OPEN:
                self.close()
            fd = self._fds[segment] = Disk.open_fd(self._directory / segment, flags)
        return fd


_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
decode_record = _decoder.decode
"""Decodes the record in a line's JSON. Raises `DecodeError` if it is not a record of this
version."""


class _Segment(msgspec.Struct, frozen=True, tag="run"):
    """The content of a segment's first line: the run to which the segment belongs."""

    run_id: str = ""


_OF_A_RUN = b'{"type":"run",'


def beginning_of(run_id: str) -> bytes:
    """The first line of each segment of this run; empty if the run's id is unknown."""
    return frame(msgspec.json.encode(_Segment(run_id))) if run_id else b""


def run_of(journal: Path) -> str:
    """The id of a journal's run, from the lock file next to the journal; empty without a lock."""
    holder = read_holder(journal.absolute().parent)
    return "" if holder is None else holder.run_id


_BROKEN = "the checksum or the format of this line is wrong"


def scan_segment(
    path: Path, decode: Callable[[bytes], T], *, at: int = 0
) -> Iterator[tuple[Position, T | Damage]]:
    """Yield the records of one segment, in the order written, with one line in memory at a time.

    A last line without a line feed is incomplete: its writer died while writing it, and never
    reported the record as written. Such a line is skipped. Every other stretch that is not a whole
    record is yielded as `Damage`. So is a whole record that cannot be decoded because another
    version wrote it. After a damaged line, reading continues with the next line. If a read fails,
    or if the first line of another run's segment appears, everything from there on is one
    `Damage`.

    Args:
        path: The segment.
        decode: Decodes a line's JSON, or raises `msgspec.DecodeError`.
        at: The offset in bytes at which to start; a line must begin there.
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
                        yield rest, rest.damaged(f"skipped: it is from run {other}, not {own}")
                        return
                else:
                    try:
                        yield position, decode(payload)
                    except msgspec.DecodeError as error:
                        yield position, position.damaged(f"not understood: {error}")
                at += length
                if payload is not None and line[length - 1 : length] != b"\n":
                    # Only the line feed was changed: this line is good, and the next line follows.
                    feed = Position(name, at - 1, 1)
                    yield feed, feed.damaged(_BROKEN)
                line = line[length:] or file.readline()
    except OSError as error:
        rest = Position(name, at, 0)
        yield rest, rest.damaged(f"it cannot be read: {error.strerror}")


def segments(directory: Path) -> list[Path]:
    """The files of all segments, sorted by name.

    Raises:
        ResultsError: The directory does not exist, or cannot be read.
    """
    with cannot(f"read the journal {directory}"):
        return sorted(path for path in directory.iterdir() if SEGMENT_PATTERN.fullmatch(path.name))


def segment_size(path: Path) -> int:
    """The size of a segment in bytes.

    Raises:
        ResultsError: The segment no longer exists, or cannot be read.
    """
    with cannot(f"read {path}"):
        return path.lstat().st_size


def largest_sizes(directory: Path, known: Mapping[str, int]) -> dict[str, int]:
    """Return the largest known size in bytes of each segment in a journal, by segment name.

    The manifest stores these sizes, because a file that was cut off after a line feed looks
    complete, and a missing file leaves no trace.

    Args:
        directory: The `journal/` directory.
        known: Earlier sizes of segments, including segments that are now missing.

    Raises:
        ResultsError: The directory, or a segment in it, cannot be read.
    """
    sizes = {path.name: segment_size(path) for path in segments(directory)}
    return {name: max(sizes.get(name, 0), known.get(name, 0)) for name in {**known, **sizes}}


def cut_off(directory: Path, known: Mapping[str, int]) -> list[Damage]:
    """The damage in segments that have lost their end or are missing.

    Args:
        directory: The `journal/` directory.
        known: Earlier sizes of segments in bytes. Segments only grow, so a smaller one has lost
            its end.

    Raises:
        ResultsError: The directory, or a segment in it, cannot be read.
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
    """The journal line for one JSON text.

    Args:
        payload: Text without a line feed, less than 4 GiB.
    """
    # Copy only once: adding strings would briefly need 20 MB more for an answer of 10 MB.
    return b"%b%b\n" % (_header(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a line that is complete and unchanged; otherwise None.

    The last byte need not be a line feed, because the checksum does not cover it.
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
    # `int` also accepts signs, capitals and spaces, so compare the header with the header that
    # belongs to this payload.
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
    elif isinstance(record, EpisodeProgress):
        # Drop the exchanges: they refer to bodies in other records, and the episode's last record
        # repeats them.
        changed["exchanges"] = []
    return msgspec.structs.replace(record, **changed)


def without_surrogates(text: str) -> str:
    r"""`text` with unpaired surrogates, which UTF-8 cannot encode, escaped as in `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _map_exchanges(exchanges: Sequence[Exchange], change: Callable[[str], str]) -> list[Exchange]:
    """The exchanges with `change` applied to the strings in each body; JSON bodies stay valid."""

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
