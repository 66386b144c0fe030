"""What the journal says of each case, before any conversation is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.records import Grade
from pytest_ultrapar.results.graded import GRADED
from pytest_ultrapar.results.heads import EndedHead, StartedHead, scan_heads
from pytest_ultrapar.results.journal import Damage, Position, segments

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.records import EngineSpent


class EpisodeEntry(NamedTuple):
    """One ended episode of a case; entries sort by time.

    Attributes:
        worker: Who ran it: with both times, what no two episodes of a case have in common.
    """

    ended_at_us: int
    position: Position
    ending: str
    worker: str = ""
    started_at_us: int = 0

    def repeats(self, other: EpisodeEntry) -> bool:
        """Whether both are records of one and the same episode."""
        return (self.worker, self.started_at_us, self.ended_at_us) == (
            other.worker,
            other.started_at_us,
            other.ended_at_us,
        )


@dataclass(slots=True)
class CaseHistory:
    """All that was written of one case.

    Attributes:
        grade: The one that stands; None while the case was never graded.
        episodes: All ended ones, those that were interrupted or run again among them.
        has_started: Whether any episode began.
    """

    grade: Grade | None = None
    episodes: list[EpisodeEntry] = field(default_factory=list)
    has_started: bool = False

    @property
    def had_episode(self) -> bool:
        """Whether the grade is about an episode, be it that nothing of it is left to be read.

        Skipped by a mark, or with a fixture that failed before it, a case never has one.
        """
        graded = self.grade is not None and self.grade.outcome in GRADED
        return graded or self.has_started or bool(self.episodes)

    def add_grade(self, grade: Grade) -> None:
        """The last grade stands, but a measurement is never replaced by `infra`."""
        if self.grade is None or _rank(self.grade) <= _rank(grade):
            self.grade = grade

    def add_episode(self, entry: EpisodeEntry) -> EpisodeEntry | None:
        """Note an ended episode; returns the entry that it merely repeats, if there is one."""
        earlier = next((one for one in self.episodes if entry.repeats(one)), None)
        if earlier is None:
            self.episodes.append(entry)
        return earlier

    def final_episode(self) -> EpisodeEntry | None:
        """The episode that the standing grade is about: the last one that had ended by then.

        None without a grade, and for a case that was graded without an episode (skipped by a mark).
        """
        if self.grade is None:
            return None
        whole = [entry for entry in self.episodes if entry.ending != "interrupted"]
        if self.grade.outcome != "infra":
            whole = [entry for entry in whole if entry.ending != "infra"]
        before = [entry for entry in whole if entry.ended_at_us <= self.grade.at_us]
        # None before it: the wall clock was set back between the two.
        return max(before or whole, key=_ended_at, default=None)


class JournalHistory(NamedTuple):
    """Of a whole journal.

    Attributes:
        cases: What each case id left behind.
        damage: What could not be read.
        engines: How busy each engine was that came to its end.
    """

    cases: dict[str, CaseHistory]
    damage: list[Damage]
    engines: list[EngineSpent]


def read_history(journal: Path) -> JournalHistory:
    """Go through all segments of a run's `journal/`, one record in memory at a time.

    Returns:
        Some 500 bytes for each case; episodes of a case in the order of their ends.
    """
    history = JournalHistory({}, [], [])
    for path in segments(journal):
        for position, head in scan_heads(path):
            if isinstance(head, Damage):
                history.damage.append(head)
            elif isinstance(head, Grade):
                _case(history, head.case_id).add_grade(head)
            elif isinstance(head, StartedHead):
                _case(history, head.case_id).has_started = True
            elif isinstance(head, EndedHead):
                _add_episode(history, head, position)
            elif head not in history.engines:
                history.engines.append(head)
    for case in history.cases.values():
        case.episodes.sort(key=_ended_at)
    return history


def _add_episode(history: JournalHistory, head: EndedHead, position: Position) -> None:
    entry = EpisodeEntry(head.ended_at_us, position, head.ending, head.worker, head.started_at_us)
    twin = _case(history, head.case_id).add_episode(entry)
    if twin is not None:
        where = f"{twin.position.segment} at byte {twin.position.offset}"
        reason = f"it repeats the episode in {where} and counts once"
        history.damage.append(Damage(position.segment, position.offset, position.length, reason))


def _case(history: JournalHistory, case_id: str) -> CaseHistory:
    case = history.cases.get(case_id)
    if case is None:
        case = history.cases[case_id] = CaseHistory()
    return case


def _rank(grade: Grade) -> tuple[bool, int]:
    return (grade.outcome != "infra", grade.at_us)


def _ended_at(entry: EpisodeEntry) -> int:
    return entry.ended_at_us
