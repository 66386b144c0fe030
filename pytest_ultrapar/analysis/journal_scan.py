"""Read a run's journal record by record as it grows, so that little is left for the end.

Each record is decoded once and stored in columns, in the order of the journal. Only at the end is
it known which episode counts for a case. So the rows are not put in their final order until then.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.analysis.repetitions import cells_of
from pytest_ultrapar.analysis.requests import RequestLog
from pytest_ultrapar.analysis.table_layouts import Uses
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.store.cases_file import claimed_of, read_plan, read_tables
from pytest_ultrapar.store.journal import Damage, JournalReader
from pytest_ultrapar.store.journal_history import (
    GrowingJournal,
    JournalHistory,
    UnreadableEpisode,
    cut_off_episodes,
    decode_whole,
)
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.table_set import Ended, TableSet
from pytest_ultrapar.store.tables import grade_values, parameter_columns
from pytest_ultrapar.store.transcripts import conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.measures import Measures
    from pytest_ultrapar.analysis.slices import Slices
    from pytest_ultrapar.records import Case, JournalRecord
    from pytest_ultrapar.store.journal import Position
    from pytest_ultrapar.store.journal_history import CaseHistory
    from pytest_ultrapar.store.manifest import Manifest
    from pytest_ultrapar.store.table_rows import Table
    from pytest_ultrapar.store.table_set import StoredEpisode


class JournalScan:
    """Reads the records in a journal.

    Args:
        run_dir: A run directory with a manifest and planned cases.
        slices: The run's cases in slices. The method `slices` then reads one slice at a time. None
            to read all cases at once.

    Attributes:
        cases: All planned cases, or the cases of the current slice. They include cases that other
            hosts claimed, until `leave_out_others` is called.
        history: The records that were read so far, by case.
        unreadable: Undamaged episode records that cannot be read, because another version wrote
            them.
        tables: The table rows made from the records.
        layouts: For each test, the names by which its results are laid out.

    Raises:
        ResultsError: The manifest or the cases cannot be read.
    """

    def __init__(self, run_dir: Path, slices: Slices | None = None) -> None:
        self._manifest = read_manifest(run_dir)
        self._run_dir = run_dir
        self._slices = slices
        self.cases: list[Case] = [] if slices is not None else read_plan(run_dir)
        # Cases by number, and numbers by case id.
        self._of_number: list[Case] = []
        self._planned: dict[str, int] = {}
        self._alike: list[tuple[Any, ...]] = []
        self.layouts = {} if slices is None else slices.layouts
        self._part = self._manifest.measured_part
        self._journal = GrowingJournal(run_dir / "journal")
        self._reader = JournalReader(run_dir / "journal")
        self.history = JournalHistory()
        self.unreadable: list[Damage] = []
        params = parameter_columns(self.cases) if slices is None else slices.params
        self.tables = TableSet(self._manifest, params, partial(conversation, run_dir))
        self._log = self.new_log()
        # The key is the `id()` of an entry; it stays valid because the history keeps the entry
        # alive.
        self._episodes: dict[int, StoredEpisode] = {}
        if slices is not None:
            self.history.damage.extend(slices.damage)
            self.history.engines.extend(slices.engines)

    @property
    def is_sliced(self) -> bool:
        """Whether the cases are read in slices."""
        return self._slices is not None

    @property
    def n_cases(self) -> int:
        """The number of planned cases, over all slices."""
        return len(self.cases) if self._slices is None else self._slices.n_cases

    @property
    def n_planned(self) -> Counter[tuple[str, str]]:
        """The number of planned cases by suite and model."""
        if self._slices is not None:
            return self._slices.n_planned
        return Counter((case.suite, case.model) for case in self.cases)

    def said(self) -> set[str]:
        """The names that `grade_values` returns for final grades (with slices, for all grades)."""
        if self._slices is not None:
            return self._slices.said
        grades = (found.grade for found in self.history.cases.values())
        return {name for grade in grades if grade is not None for name in grade_values(grade)}

    def new_log(self) -> RequestLog:
        """Return an empty log for requests on the run's lanes."""
        return RequestLog(self._manifest.pool_lanes, from_us=self._part.from_us)

    def slices(self) -> Iterator[Sequence[Case]]:
        """Yield the cases in each slice, loading it first; without slices, yield all cases.

        Raises:
            ResultsError: The journal cannot be read.
        """
        if self._slices is None:
            yield self.cases
            return
        while (cases := self._slices.next_cases()) is not None:
            self._take_slice(self._slices, cases)
            yield cases

    def _take_slice(self, slices: Slices, cases: list[Case]) -> None:
        self.cases = cases
        self.history.cases.clear()
        self.history.went_on.clear()
        self.tables.clear()
        self._plan(slices.cells(cases))
        self._log = self.new_log()
        self._episodes.clear()
        for position in slices.positions(cases):
            # Skip records that were removed in the meantime.
            with suppress(ResultsError):
                self._take(position, decode_whole(self._reader.payload(position)))

    def _plan(self, cells: Mapping[str, str]) -> None:
        """From the cases, store the fields that rows and figures need."""
        self._of_number = self.cases
        self._planned = {case.case_id: number for number, case in enumerate(self.cases)}
        self.tables.plan(self.cases)
        self._alike = [self._alike_of(case, cells[case.case_id]) for case in self.cases]

    def _alike_of(self, case: Case, cell: str) -> tuple[Any, ...]:
        test = case.test
        names = tuple([case.value_of(name) for name in self._manifest.summary_by])
        own = (test, *[case.value_of(name) for name in self.layouts[test]])
        return case.suite, case.model, names, own, case.cluster, cell

    def read_new(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Read the records that were written since the last call.

        Args:
            stop: Called after each record. If it returns true, the remaining records are left for
                the next call.

        Raises:
            ResultsError: The journal cannot be listed.
        """
        if not self._planned:
            # This is not done earlier, because the run needs the CPU at its beginning.
            self.layouts = Uses(read_tables(self._run_dir), self.cases).layouts()
            self._plan(cells_of(self.cases))
        for position, record in self._journal.new():
            self._take(position, record)
            if stop():
                return

    def leave_out_others(self) -> None:
        """Leave out cases that other hosts of the run claimed; call this after the run's end.

        Raises:
            ResultsError: This host's claims cannot be read.
        """
        self.cases = [*claimed_of(self._run_dir, self.cases)]
        # From now on, the other cases count as unplanned. This host may have sent requests for them
        # before another host took them over.
        self._planned = {case.case_id: self._planned[case.case_id] for case in self.cases}

    def fits(self, manifest: Manifest) -> bool:
        """Whether reading the whole journal again with this manifest would give the same result.

        This is false if records are damaged, were removed or occur twice, because the result may
        then depend on the order of the journal's segments. Such records are rare.

        Raises:
            ResultsError: The journal cannot be listed.
        """
        if self.history.damage or self.unreadable or self._journal.lost():
            return False
        return _plan(manifest) == _plan(self._manifest)

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def ended(self) -> list[Ended]:
        """Return the cases that have records: planned cases in their order, then unplanned ones.

        Unplanned cases and unfinished episodes are included because their requests may have cost
        money.
        """
        for at, open_one in cut_off_episodes(self._run_dir / "journal", self.history).items():
            self._take(at, open_one)
        known, planned = self.history.cases, self._planned
        unplanned = sorted(known.keys() - planned.keys())
        return [
            *[self._ended(planned[one], known[one]) for one in planned if one in known],
            *[self._ended(-1, known[case_id]) for case_id in unplanned],
        ]

    def _ended(self, number: int, found: CaseHistory) -> Ended:
        kept = self._episodes
        episodes = [own for one in found.episodes if (own := kept.get(id(one))) is not None]
        grade = found.grade if number >= 0 else None
        if grade is None:
            return Ended(number, None, episodes, None, -1)
        final = found.final_episode()
        graded = kept.get(id(final))
        if graded is not None:
            return Ended(number, grade, episodes, graded, graded.row)
        row = self.tables.add_without_episode(grade, had_episode=found.had_episode)
        return Ended(number, grade, episodes, None, row)

    def figures(self, ended: Sequence[Ended], spent: Table, measures: Measures) -> RequestLog:
        """Add the measures of cases with a result to `measures`; return the requests of all cases.

        Measures and requests are in the order of the cases. The requests of a case's graded episode
        come after the case's other requests.

        Args:
            ended: The cases.
            spent: The figures for the graded episodes of these cases.
            measures: The measures to which the new ones are added.
        """
        own = [(one.number, one.grade) for one in ended if one.grade is not None]
        alike = [self._alike[number] for number, _ in own]
        grades = [grade for _, grade in own]
        for at, (number, grade) in enumerate(own):
            if grade.labels:
                case = self._of_number[number].labelled(grade.labels)
                alike[at] = self._alike_of(case, alike[at][-1])
        ran = iter(measures.take(alike, grades, spent, self._part).tolist())
        parts: list[range] = []
        measured: list[int] = []
        for one in ended:
            parts += [each.requests for each in one.episodes if each is not one.graded]
            if one.graded is not None:
                parts.append(one.graded.requests)
            if one.grade is not None and next(ran):
                measured.append(len(parts) - 1)
        return self._log.arranged(parts, measured)

    def read(self, position: Position) -> EpisodeEnded | None:
        """Read an episode from the journal; None if it can no longer be read."""
        try:
            record = self._reader.read(position)
        except ResultsError as error:
            self.unreadable.append(position.damaged(str(error)))
            return None
        assert isinstance(record, EpisodeEnded)
        return record

    def _take(self, position: Position, record: JournalRecord | UnreadableEpisode | Damage) -> None:
        if isinstance(record, UnreadableEpisode):
            if self.history.add(position, record.head) is not None:
                # The checksum is correct, so another version wrote the record. Make the tables
                # without this case.
                why = f"the journal record in {position} is from another version: {record.why}"
                self.unreadable.append(position.damaged(why))
        elif (entry := self.history.add(position, record)) is not None:
            assert isinstance(record, EpisodeEnded)
            requests = self._log.add(record, measured=False)
            number = self._planned.get(record.case_id)
            case = None if number is None else self._of_number[number]
            self._episodes[id(entry)] = self.tables.add_episode(case, position, record, requests)


def _plan(manifest: Manifest) -> Manifest:
    """Return the manifest without the fields that change after the first request."""
    return msgspec.structs.replace(manifest, bound=None, lanes=[], segments={}, ended_at=None)
