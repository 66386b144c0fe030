"""Read the cases of a run from its journal, even if the run is in progress, killed or damaged.

Tables exist only after the run has ended, but the journal always exists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from pytest_ultrapar.errors import ResultsError, refuse
from pytest_ultrapar.pool.field_checks import did_you_mean
from pytest_ultrapar.pool.money import amount_of
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.report.text import counted, listed, one_line
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.cost import Prices
from pytest_ultrapar.store.journal import JournalReader, cut_off
from pytest_ultrapar.store.journal_history import CaseHistory, cut_off_episodes, read_history
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, in_use

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_ultrapar.records import Attempt, Case
    from pytest_ultrapar.store.journal import Damage, Position
    from pytest_ultrapar.store.journal_history import EpisodeEntry, JournalHistory
    from pytest_ultrapar.store.manifest import Manifest

_ORDER = (
    *("error", "infra", "unsolved", "partial", "interrupted", "never ran", "not graded"),
    *("running", "waiting", "skipped", "scored", "solved"),
)
"""The states of cases, in the order in which cases are listed; failures come first."""
_NO_FAILURE = frozenset({"running", "waiting", "skipped", "scored", "solved"})
_MOST_NAMED = 5


class RunCase(NamedTuple):
    """A case of a run and its current state.

    Attributes:
        case: The planned case.
        history: The records of the case in the journal.
        state: The outcome of a graded case. The state of any other case is `running`, `waiting`,
            `not graded` (its episode has ended), `interrupted` or `never ran`.
    """

    case: Case
    history: CaseHistory
    state: str

    @property
    def counts(self) -> EpisodeEntry | None:
        """The episode that represents the case; None if the case has no episode.

        It is the graded episode. Without a grade, it is the last episode that was not interrupted,
        or the last one if all were.
        """
        history = self.history
        last = history.episodes[-1] if history.episodes else None
        return history.kept_episode() or last

    @property
    def test_failed(self) -> bool:
        """Whether pytest reports the case's test as failed."""
        grade = self.history.grade
        return grade is not None and grade.test in {"failed", "error"}

    @property
    def failed(self) -> bool:
        """Whether the case counts as failed, because of its state or because its test failed."""
        return self.state not in _NO_FAILURE or self.test_failed

    @property
    def shown_state(self) -> str:
        """The state, followed by the grade's kind, if any, or by the result of a failed test."""
        grade = self.history.grade
        if grade is None:
            return self.state
        if self.test_failed and self.state in {"solved", "partial", "scored"}:
            return f"{self.state}, test {grade.test}"
        return f"{self.state}/{one_line(grade.kind)}" if grade.kind else self.state


class RunCases(NamedTuple):
    """All cases of a run.

    Attributes:
        directory: The run's directory.
        manifest: The run's manifest; None if it cannot be read.
        is_in_use: Whether a process is writing to the run.
        cases: The cases in the planned order.
        damage: The parts of the journal that could not be read.
        open: The episodes that have not ended, with their answers so far.
    """

    directory: Path
    manifest: Manifest | None
    is_in_use: bool
    cases: tuple[RunCase, ...]
    damage: tuple[Damage, ...]
    open: Mapping[Position, EpisodeEnded]

    def ordered(self) -> list[RunCase]:
        """Return the cases, failures first. Cases in the same state are in the planned order."""
        return sorted(
            self.cases, key=lambda one: (not one.failed, _ORDER.index(one.state), one.case.index)
        )

    def find(self, name: str) -> RunCase:
        """Return the case with this id or node id, or the only case that matches in part.

        A case matches in part if its id starts with `name`, or if its node id contains `name`.

        Raises:
            ConfigError: No case matches, or several cases do.
        """
        if not name:
            refuse("CASE is empty: pass a case's id or a part of its node id")
        whole = [one for one in self.cases if name in {one.case.case_id, one.case.nodeid}]
        found = whole or [
            one
            for one in self.cases
            if name in one.case.nodeid or one.case.case_id.startswith(name)
        ]
        if not found:
            refuse(self._unknown(name))
        if len(found) > 1:
            named = listed([one_line(one.case.nodeid) for one in found], _MOST_NAMED)
            refuse(f"{name!r} matches {counted(len(found), 'case')} in {self.directory}: {named}")
        return found[0]

    def _unknown(self, name: str) -> str:
        nodeids = [one.case.nodeid for one in self.cases]
        # Also compare with the part after `::`, because users rarely type the whole path of a node
        # id.
        names = [*nodeids, *(nodeid.partition("::")[2] for nodeid in nodeids)]
        near = did_you_mean(name, dict.fromkeys(filter(None, names)), cutoff=0.3)
        return f"no case in {self.directory} matches {name!r}{one_line(near)}"


def read_run_cases(directory: Path) -> RunCases:
    """Read the cases of a run in their current state.

    Raises:
        ResultsError: The run's planned cases or its journal cannot be read.
    """
    is_in_use = in_use(directory)
    cases = read_cases(directory)
    history = read_history(directory / JOURNAL_NAME)
    unended = cut_off_episodes(directory / JOURNAL_NAME, history)
    for position, episode in unended.items():
        history.add(position, episode)
    damage = history.damage
    manifest = None
    # Continue without a manifest: only prices and limits are unknown then.
    with suppress(ResultsError):
        manifest = read_manifest(directory)
        damage = [*damage, *cut_off(directory / JOURNAL_NAME, manifest.segments)]
    found = tuple(_case(case, history, is_in_use=is_in_use) for case in cases)
    return RunCases(directory, manifest, is_in_use, found, tuple(damage), unended)


def _case(case: Case, history: JournalHistory, *, is_in_use: bool) -> RunCase:
    found = history.cases.get(case.case_id, CaseHistory())
    if found.grade is not None:
        state: str = found.grade.outcome
    elif found.finished:
        state = "not graded"
    elif found.had_episode:
        state = "running" if is_in_use else "interrupted"
    else:
        state = "waiting" if is_in_use else "never ran"
    return RunCase(case, found, state)


class EpisodeReader:
    """Reads the episodes of a run's cases, and computes their cost. Use it as a context manager.

    Args:
        run: The run.
    """

    def __init__(self, run: RunCases) -> None:
        self._journal = JournalReader(run.directory / JOURNAL_NAME)
        self._open = run.open
        self._prices = None if run.manifest is None else Prices(run.manifest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def last(self, one: RunCase) -> EpisodeEnded | None:
        """Return the episode that a case's row in `results` describes.

        The result is None if the case has no episode, or if the episode cannot be read.
        """
        entry = one.counts
        return None if entry is None else self._read(entry)

    def earlier(self, one: RunCase) -> Iterator[EpisodeEnded]:
        """Yield all of a case's other episodes, except those that cannot be read."""
        for entry in one.history.episodes:
            if entry != one.counts and (episode := self._read(entry)) is not None:
                yield episode

    def cost(self, attempts: Iterable[Attempt]) -> float | None:
        """Return the cost of these requests in the run's currency; None if the cost is unknown."""
        units = None if self._prices is None else self._prices.of_all(attempts)
        return None if units is None else amount_of(units)

    def _read(self, entry: EpisodeEntry) -> EpisodeEnded | None:
        try:
            record = self._open.get(entry.position) or self._journal.read(entry.position)
        except ResultsError:
            return None
        return record if isinstance(record, EpisodeEnded) else None
