"""Find the state of each case in the journal, and the episodes that need no new request.

Most readers need no conversations, so they decode only the heads of records. Examples are a resumed
run when it starts (`recover`), the controller after a worker has died (`find_started_not_ended`),
and merges (`read_history`). The compaction needs the conversations, and reads the journal while it
grows (`GrowingJournal`). Workers look up recovered episodes in the `RecoveredIndex`.
"""

from __future__ import annotations

import os
import threading
from bisect import insort
from contextlib import closing, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec

from pytest_ultrapar.broker.protocol import GONE
from pytest_ultrapar.errors import ResultsError, bare_kind
from pytest_ultrapar.records import (
    GRADED,
    EngineSpent,
    EpisodeEnded,
    EpisodeProgress,
    EpisodeProgressHead,
    EpisodeStarted,
    Grade,
)
from pytest_ultrapar.store.journal import (
    SEGMENT_PATTERN,
    Damage,
    JournalReader,
    JournalWriter,
    Position,
    cut_off,
    decode_record,
    frame,
    scan_segment,
    segment_size,
    segments,
    unframe,
)
from pytest_ultrapar.system.disk import Disk
from pytest_ultrapar.system.files import cannot, read_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_ultrapar.records import JournalRecord


class EpisodeHead(msgspec.Struct, frozen=True, tag="ended"):
    """The head of an `EpisodeEnded`; the rest of the record is not decoded."""

    case_id: str
    worker: str
    ending: str
    started_at_us: int
    ended_at_us: int
    kind: str | None = None


Head = EpisodeStarted | EpisodeProgressHead | EpisodeHead | Grade | EngineSpent
decode_head = msgspec.json.Decoder(Head).decode
"""Like `decode_record`, but decodes only the heads of `EpisodeEnded` and `EpisodeProgress`."""


FINISHED_ENDINGS: frozenset[str] = frozenset({"returned", "refused", "error", "skipped"})
"""The final endings. After the others, `infra` and `interrupted`, an episode runs again."""


class EpisodeEntry(NamedTuple):
    """One ended episode of a case. Entries sort by the time at which their episodes ended.

    Attributes:
        worker: The worker that ran the episode. Together with both times, it identifies the episode
            among all episodes of the case.
        kind: As in `EpisodeEnded`.
    """

    ended_at_us: int
    position: Position
    ending: str
    worker: str = ""
    started_at_us: int = 0
    kind: str | None = None

    def repeats(self, other: EpisodeEntry) -> bool:
        """Whether both entries record the same episode."""
        return (self.worker, self.started_at_us, self.ended_at_us) == (
            other.worker,
            other.started_at_us,
            other.ended_at_us,
        )


class CaseHistory(msgspec.Struct):
    """All records of one case.

    Attributes:
        grade: The grade that counts; None if the case was never graded.
        episodes: All ended episodes, in the order in which they ended. There are several if the
            case ran again; interrupted ones are included.
        has_started: Whether any episode began.
    """

    grade: Grade | None = None
    episodes: list[EpisodeEntry] = []
    has_started: bool = False

    @property
    def had_episode(self) -> bool:
        """Whether the case had an episode, even if the episode's records are lost.

        A case never had one if a mark skipped it, or if a fixture failed before the episode began.
        """
        graded = self.grade is not None and self.grade.outcome in GRADED
        return graded or self.has_started or bool(self.episodes)

    @property
    def finished(self) -> list[EpisodeEntry]:
        """The case's episodes that need no further request, in the order in which they ended."""
        return [entry for entry in self.episodes if entry.ending in FINISHED_ENDINGS]

    @property
    def was_cut_off(self) -> bool:
        """Whether the case is unfinished because its last episode was cut off.

        An episode is also cut off if the broker dies.
        """
        if not self.episodes:
            return self.has_started
        last = self.episodes[-1]
        is_cut = last.ending == "interrupted" or bare_kind(last.kind or "") == GONE
        return is_cut and not self.finished

    def add_grade(self, grade: Grade) -> None:
        """Add a grade. The latest grade counts, but `infra` never replaces a measurement."""
        if self.grade is None or _rank(self.grade) <= _rank(grade):
            self.grade = grade

    def add_episode(self, entry: EpisodeEntry) -> EpisodeEntry | None:
        """Add an ended episode. If it was added before, return its earlier entry."""
        for earlier in self.episodes:
            if entry.repeats(earlier):
                return earlier
        insort(self.episodes, entry, key=attrgetter("ended_at_us"))
        return None

    def kept_episode(self) -> EpisodeEntry | None:
        """The final episode. Without one, the last episode that was not interrupted, if any."""
        whole = [entry for entry in self.episodes if entry.ending != "interrupted"]
        return self.final_episode() or (whole[-1] if whole else None)

    def final_episode(self) -> EpisodeEntry | None:
        """The episode that was graded: the last episode that had ended before the grade.

        None if there is no grade, or if the case had no episode, for example because a mark skipped
        it.
        """
        if self.grade is None:
            return None
        others = {"interrupted", "interrupted" if self.grade.outcome == "infra" else "infra"}
        found = [one for one in self.episodes if one.ending not in others]
        if len(found) > 1:
            # If no episode ended before the grade, the wall clock was set back in between.
            found = [one for one in found if one.ended_at_us <= self.grade.at_us] or found
        return found[-1] if found else None


class JournalHistory:
    """The state of each case in a journal, built up one record at a time.

    Attributes:
        cases: The history of each case, by case id. Each history takes about 500 bytes.
        damage: The unreadable parts of the journal.
        engines: How busy each engine was. An engine that did not shut down properly is missing.
        went_on: For each episode, by case, worker and start: the positions of its `EpisodeProgress`
            records. An ended episode is included only if its end was added before these records.
    """

    def __init__(self) -> None:
        self.went_on: dict[tuple[str, str, int], list[Position]] = {}
        self.cases: dict[str, CaseHistory] = {}
        self.damage: list[Damage] = []
        self.engines: list[EngineSpent] = []

    def add(self, position: Position, record: Head | EpisodeEnded | Damage) -> EpisodeEntry | None:
        """Add a record or its head. If it records the end of a new episode, return its entry."""
        if isinstance(record, Damage):
            self.damage.append(record)
        elif isinstance(record, Grade):
            self._case(record.case_id).add_grade(record)
        elif isinstance(record, EpisodeStarted):
            self._case(record.case_id).has_started = True
        elif isinstance(record, EngineSpent):
            if record not in self.engines:
                self.engines.append(record)
        elif isinstance(record, EpisodeProgressHead):
            self.went_on.setdefault(_episode_of(record), []).append(position)
        else:
            self.went_on.pop(_episode_of(record), None)
            own = (record.worker, record.started_at_us, record.kind)
            entry = EpisodeEntry(record.ended_at_us, position, record.ending, *own)
            twin = self._case(record.case_id).add_episode(entry)
            if twin is None:
                return entry
            reason = f"it repeats the episode in {twin.position}, which is counted only once"
            self.damage.append(position.damaged(reason))
        return None

    def _case(self, case_id: str) -> CaseHistory:
        case = self.cases.get(case_id)
        if case is None:
            case = self.cases[case_id] = CaseHistory()
        return case


def _episode_of(record: EpisodeProgressHead | EpisodeHead | EpisodeEnded) -> tuple[str, str, int]:
    return record.case_id, record.worker, record.started_at_us


def read_history(journal: Path) -> JournalHistory:
    """Read all segments of a run's `journal/`, one record in memory at a time."""
    history = JournalHistory()
    for path in segments(journal):
        for position, head in scan_segment(path, decode_head):
            history.add(position, head)
    return history


class UnreadableEpisode(NamedTuple):
    """An episode whose record is complete, but from another version. Only the head is readable."""

    head: EpisodeHead
    why: str


class GrowingJournal:
    """Reads a run's `journal/` while it grows, each whole record once.

    Args:
        directory: The `journal/` directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, int] = {}

    def new(self) -> Iterator[tuple[Position, JournalRecord | UnreadableEpisode | Damage]]:
        """The records appended since the last call.

        A caller may stop at any record; the next call returns the rest. A line that is
        still being written is returned by a later call.

        Raises:
            ResultsError: The journal cannot be listed, or a segment is removed during the call.
        """
        for path in segments(self._directory):
            name = path.name
            read = self._read.get(name, 0)
            if segment_size(path) <= read:
                continue
            for position, record in scan_segment(path, decode_whole, at=read):
                self._read[name] = position.offset + position.length
                yield position, record

    def lost(self) -> bool:
        """Whether a segment, possibly a removed one, has lost records that were read from it.

        Raises:
            ResultsError: The journal cannot be listed, or a segment is removed during the call.
        """
        return bool(cut_off(self._directory, self._read))


def decode_whole(payload: bytes) -> JournalRecord | UnreadableEpisode:
    """Decode a line's JSON into a record or, if another version wrote an episode, into its head.

    Raises:
        msgspec.DecodeError: The JSON is neither.
    """
    try:
        return decode_record(payload)
    except msgspec.DecodeError as error:
        head = decode_head(payload)
        if isinstance(head, EpisodeHead):
            return UnreadableEpisode(head, str(error))
        raise


def _rank(grade: Grade) -> tuple[bool, int]:
    return (grade.outcome != "infra", grade.at_us)


class CutOff(NamedTuple):
    """The cases that an earlier session left unfinished.

    Attributes:
        n_cases: How many there are.
        n_begun: How many of them already have answers, from which they continue.
    """

    n_cases: int
    n_begun: int


def join_interrupted(
    journal: Path, history: JournalHistory, worker: str = ""
) -> dict[str, Position]:
    """Join the answers of each interrupted episode into one record, and append it to the journal.

    Args:
        journal: The run's `journal/` directory.
        history: The history of that journal.
        worker: Only the episodes of this worker are included; if empty, the episodes of all
            workers. These workers must have ended.

    Returns:
        The position of the new record, by case id. If a case has several new records, this is the
        position of the last one.

    Raises:
        ResultsError: The journal cannot be read or written.
    """
    killed = [*cut_off_episodes(journal, history, worker).values()]
    if not killed:
        return {}
    # The journal's text contains no secrets, so none need to be removed.
    with closing(JournalWriter(journal, "controller", bytes)) as writer:
        positions = writer.append_all(killed)
    return dict(zip((one.case_id for one in killed), positions, strict=True))


def cut_off_episodes(
    journal: Path, history: JournalHistory, worker: str = ""
) -> dict[Position, EpisodeEnded]:
    """Return a record of each interrupted episode, with all answers that it had received.

    Args:
        journal: The run's `journal/` directory.
        history: The history of that journal.
        worker: Only the episodes of this worker are included; if empty, the episodes of all
            workers. These workers must have ended.

    Returns:
        The new records, in the order in which the episodes ended. Each key is the position of the
        episode's last `EpisodeProgress` record.
    """
    found = {}
    with closing(JournalReader(journal)) as reader:
        for (case_id, who, began_us), positions in history.went_on.items():
            own = history.cases.get(case_id, CaseHistory()).episodes
            ended = {(one.worker, one.started_at_us) for one in own}
            if worker not in {"", who} or (who, began_us) in ended:
                continue
            whole = EpisodeEnded(case_id, who, "interrupted", began_us, began_us, 0.0)
            for position in positions:
                with suppress(ResultsError, msgspec.DecodeError):
                    whole = _with_more(whole, _decode_went_on(reader.payload(position)))
            found[positions[-1]] = whole
    return dict(sorted(found.items(), key=lambda one: one[1].ended_at_us))


_decode_went_on = msgspec.json.Decoder(EpisodeProgress).decode


def _with_more(whole: EpisodeEnded, more: EpisodeProgress) -> EpisodeEnded:
    # Bodies refer to earlier bodies: after an unreadable one, the rest cannot be read.
    follows = more.n_before == len(whole.exchanges)
    return msgspec.structs.replace(
        whole,
        ended_at_us=more.at_us,
        duration_s=(more.at_us - whole.started_at_us) / 1e6,
        attempts=[*whole.attempts, *more.attempts],
        exchanges=[*whole.exchanges, *(more.exchanges if follows else ())],
        n_turns=len({one.turn for one in [*whole.attempts, *more.attempts]}),
        began_us=more.began_us,
    )


FILE_NAME = "recovered.jsonl"
Said = Literal["finished", "cut off", "awaited"]
"""The state of a case in the index. `awaited` means that its episode, for which other cases may be
waiting, has ended."""


def recover(directory: Path) -> tuple[dict[str, Position], frozenset[str], list[Damage], CutOff]:
    """Build the index of a resumed run from the current content of its journal.

    The index from an earlier session may name records that have since been damaged or removed. Only
    the coordinator may call this, and only before any worker looks up a case.

    Args:
        directory: The run directory.

    Returns:
        The positions of finished episodes by case id, the finished cases with unreadable episodes,
        the damage in the journal, and the numbers of cases that were cut off.

    Raises:
        ResultsError: The journal cannot be listed, or the index cannot be written.
    """
    history = read_history(directory / "journal")
    with closing(JournalReader(directory / "journal")) as reader:
        finished = {
            case_id: position
            for case_id, case in history.cases.items()
            if (position := _last_readable(reader, case.finished)) is not None
        }
        begun = {
            case_id: position
            for case_id, case in history.cases.items()
            if case.was_cut_off
            and (position := _last_readable(reader, case.episodes[-1:], answered=True)) is not None
        }
    once = {case_id for case_id, case in history.cases.items() if _was_measured(case)}
    once.update(entry.case_id for entry in _earlier_entries(directory) if entry.said == "finished")
    begun |= join_interrupted(directory / "journal", history)
    write_whole(directory / FILE_NAME, _lines(finished) + _lines(begun, "cut off"))
    n_cut_off = sum(case.was_cut_off for case in history.cases.values())
    cut_off = CutOff(n_cut_off, len(begun.keys() - finished.keys()))
    return finished, frozenset(once - finished.keys()), history.damage, cut_off


def _last_readable(
    reader: JournalReader, ended: list[EpisodeEntry], *, answered: bool = False
) -> Position | None:
    for entry in reversed(ended):
        with suppress(ResultsError):
            if getattr(reader.read(entry.position), "exchanges", ()) or not answered:
                return entry.position
    return None


def _was_measured(case: CaseHistory) -> bool:
    return case.grade is not None and case.grade.outcome in GRADED


def _earlier_entries(directory: Path) -> list[_Entry]:
    try:
        return _entries(read_file(directory / FILE_NAME))
    except OSError:
        return []


def find_started_not_ended(directory: Path, worker: str) -> set[str]:
    """Find the cases that a dead worker began but never ended: they may have killed the worker.

    Args:
        directory: The run's `journal/` directory.
        worker: The dead worker's id. If several processes used this id, only the last process
            counts: a resumed run numbers its workers from 0 again.
    """
    process_of = {
        path: match["pid"]
        for path in segments(directory)
        if (match := SEGMENT_PATTERN.fullmatch(path.name)) and match["worker"] == worker
    }
    if not process_of:
        return set()
    dead = process_of[max(process_of, key=lambda path: path.lstat().st_mtime_ns)]
    open_cases: set[str] = set()
    for path in (path for path, process in process_of.items() if process == dead):
        for _, head in scan_segment(path, decode_head):
            if isinstance(head, EpisodeStarted):
                open_cases.add(head.case_id)
            elif isinstance(head, EpisodeHead):
                open_cases.discard(head.case_id)
    return open_cases


class RecoveredIndex:
    """A file with the positions of ended episodes, such as the episodes of an interrupted run.

    One process adds entries. Other processes look up entries, including entries that are added
    after they opened the file. Any thread may use the object.

    Args:
        directory: The run directory.

    Raises:
        ResultsError: The file cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with cannot(f"open {directory / FILE_NAME}"):
            self._fd = os.open(directory / FILE_NAME, flags, 0o600)
        self._read_offset = 0
        self._positions: dict[Said, dict[str, Position | None]]
        self._positions = {said: {} for said in get_args(Said)}
        self._lock = threading.Lock()

    def add(self, positions: Mapping[str, Position | None], said: Said = "finished") -> None:
        """Record that these cases have this state, in one write.

        Args:
            positions: The position of each case's episode in the journal, by case id; None if the
                journal does not contain the episode.
            said: The state.

        Raises:
            ResultsError: The file cannot be written. The only consequence is that those cases run
                again.
        """
        lines = _lines(positions, said)
        with cannot(f"write {FILE_NAME} in the run directory"):
            while lines:
                lines = lines[os.write(self._fd, lines) :]

    def lookup(self, case_id: str, said: Said = "finished") -> Position | None:
        """The position of the case's episode, if the case has this state; otherwise None."""
        return self.known(said).get(case_id)

    def known(self, said: Said) -> Mapping[str, Position | None]:
        """All cases with this state, in the order in which they first got it.

        Costs one `fstat` if nothing was added since the last call.
        """
        if Disk.fstat(self._fd).st_size > self._read_offset:
            self._read_new_lines()
        return self._positions[said]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _read_new_lines(self) -> None:
        with self._lock:
            size = Disk.fstat(self._fd).st_size
            data = Disk.pread(self._fd, size - self._read_offset, self._read_offset)
            # The last line may be incomplete: bytes after the last line feed are read next time.
            whole = data[: data.rfind(b"\n") + 1]
            for entry in _entries(whole):
                self._positions[entry.said][entry.case_id] = entry.position
            self._read_offset += len(whole)


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    case_id: str
    position: Position | None
    said: Said = "finished"


_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(_Entry).decode


def _lines(positions: Mapping[str, Position | None], said: Said = "finished") -> bytes:
    return b"".join(frame(_encode(_Entry(*item, said))) for item in positions.items())


def _entries(lines: bytes) -> list[_Entry]:
    """The entries in all complete, undamaged lines."""
    payloads = [unframe(line) for line in lines.splitlines(keepends=True)]
    return [_decode_entry(payload) for payload in payloads if payload is not None]
