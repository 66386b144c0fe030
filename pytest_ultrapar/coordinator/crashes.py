"""Decide what happens to the cases of a dead worker. Give up a case that kills every worker.

This module decides which cases run again and which of them run alone, and it records the cases that
are given up. `dispatch` decides which worker gets the cases that run again. `xdist_session` carries
out the decisions of both modules.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.records import EpisodeEnded, Grade
from pytest_ultrapar.session.other_plugins import CaseProperties
from pytest_ultrapar.store.journal import JournalWriter
from pytest_ultrapar.store.journal_history import (
    RecoveredIndex,
    find_started_not_ended,
    join_interrupted,
    read_history,
)
from pytest_ultrapar.system.clock import utc_now_us

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pytest_ultrapar.coordinator.run import Run
    from pytest_ultrapar.records import JournalRecord


_DEATHS_BEFORE_ALONE = 2
"""A case that was in progress when this many workers died runs alone from then on. The first death
may not be the case's fault: other processes may have used up the memory, or a user may have killed
the worker. Even after two deaths the case may be innocent, because a worker has many open episodes,
and only one of them killed it."""
KIND = "worker_lost"


class Crashes:
    """Reads dead workers' journals, counts deaths, and reports lost cases.

    Use it only in the controller, on the main thread.
    """

    def __init__(self, run: Run, case_ids: Mapping[int, str]) -> None:
        """Start with no deaths.

        Args:
            run: The run.
            case_ids: Case ids by position in pytest's collection.
        """
        self._run = run
        self._case_ids = case_ids
        self._deaths: Counter[int] = Counter()
        self._journal: JournalWriter | None = None

    def worker_died(
        self, worker: str, pending: list[int], *, running: AbstractSet[int], was_alone: bool
    ) -> Crash:
        """Decide what happens to a dead worker's items, and save the episodes that it had finished.

        Args:
            worker: Id of the dead worker.
            pending: The items that it had not reported, oldest first.
            running: The items that pytest was running in the worker.
            was_alone: Whether the worker ran one episode at a time.
        """
        journal = self._run.directory.journal
        started = find_started_not_ended(journal, worker)
        suspects = {
            index
            for index in pending
            if index in self._case_ids and (self._case_ids[index] in started or index in running)
        }
        # xdist's `LoadScheduling.remove_node` assumes that the oldest item was running. Here items
        # run in the order in which their episodes end.
        plain = next((i for i in pending if i in running and i not in self._case_ids), None)
        wanted = {self._case_ids[index] for index in pending if index in self._case_ids}
        history = read_history(journal)
        finished = {
            case_id: case.finished[-1].position
            for case_id, case in history.cases.items()
            if case_id in wanted and case.finished
        }
        # These episodes are complete and paid for. The next worker reads their answers from this
        # index.
        with closing(RecoveredIndex(self._run.directory.path)) as recovered:
            recovered.add(finished)
            # Also save the answers of unfinished episodes.
            recovered.add(join_interrupted(journal, history, worker), "cut off")
        return judge(
            pending, suspects=suspects, plain=plain, deaths=self._deaths, was_alone=was_alone
        )

    def give_up(
        self, nodeid: str, case_id: str, model: str | None, worker: str
    ) -> list[pytest.TestReport]:
        """Record the outcome `infra` for a case that kills its workers.

        Returns:
            A report that shows the case, and a report of its teardown. Without the teardown report,
            pytest would not copy the case's properties into a JUnit file.
        """
        detail = f"worker lost: this case killed {worker}, on which no other case was running"
        now_us, own = utc_now_us(), "controller"
        with closing(RecoveredIndex(self._run.directory.path)) as recovered:
            recovered.add({case_id: None}, "awaited")  # cases that need it no longer wait
        self.note(
            EpisodeEnded.unasked(now_us, case_id, own, "infra", kind=KIND, detail=detail),
            Grade(case_id, own, "infra", "skipped", now_us, KIND, {}, detail),
        )
        path = nodeid.split("::", maxsplit=1)[0]
        properties = CaseProperties(self._run.directory.path).of(
            case_id=case_id, model=str(model), outcome="infra", kind=KIND
        )
        shown: dict[str, Any] = {
            "nodeid": nodeid,
            "location": (path, None, nodeid),
            "keywords": {},
            "user_properties": properties,
        }
        reason = (path, 0, f"infra: {detail}")
        return [
            pytest.TestReport(**shown, outcome="skipped", longrepr=reason, when="setup"),
            pytest.TestReport(**shown, outcome="passed", longrepr=None, when="teardown"),
        ]

    def note(self, *records: JournalRecord) -> None:
        """Append records to the controller's own segment of the journal.

        Raises:
            ResultsError: The records cannot be written.
        """
        run = self._run
        if self._journal is None:
            self._journal = JournalWriter(run.directory.journal, "controller", run.redactor.bytes)
        self._journal.append_all(records)

    def close(self) -> None:
        """Close the controller's segment of the journal, if there is one."""
        if self._journal is not None:
            self._journal.close()


@dataclass(frozen=True, slots=True)
class Crash:
    """The decision about the pending items of a dead worker.

    Attributes:
        again: Items that run again like any other item.
        alone: Items that run again on a worker that runs one episode at a time.
        lost: Items that are given up, because they kill every worker.
        plain: The test that was running, if it is not a case. It is reported as failed, as in
            xdist.
    """

    again: tuple[int, ...]
    alone: tuple[int, ...]
    lost: tuple[int, ...]
    plain: int | None


def judge(
    pending: list[int],
    *,
    suspects: AbstractSet[int],
    plain: int | None,
    deaths: Counter[int],
    was_alone: bool,
) -> Crash:
    """Decide what happens to a dead worker's items, and add the death to `deaths`.

    Args:
        pending: The items that the worker had not reported, oldest first.
        suspects: The cases that may have killed it.
        plain: The test that it was running, if that is not a case.
        deaths: For each item, how many workers have died while it was a suspect.
        was_alone: Whether the worker ran one episode at a time.
    """
    deaths.update(suspects)
    lost = set(suspects) if was_alone and len(suspects) == 1 else set()
    to_run_alone = {
        index for index in suspects - lost if was_alone or deaths[index] >= _DEATHS_BEFORE_ALONE
    }
    again = [i for i in pending if i not in lost and i not in to_run_alone and i != plain]
    return Crash(
        again=tuple(again),
        alone=tuple(index for index in pending if index in to_run_alone),
        lost=tuple(index for index in pending if index in lost),
        plain=plain,
    )
