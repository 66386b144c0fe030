"""The last word on a case that kills every worker which runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.clock import utc_now_us
from pytest_ultrapar.records import EpisodeEnded, Grade
from pytest_ultrapar.session.runtime import read_assignment
from pytest_ultrapar.store.journal import JournalWriter

if TYPE_CHECKING:
    from pytest_ultrapar.coordinator.coordinator import Coordinator


KIND = "worker_lost"


class LostCases:
    """Writes and reports lost cases; the controller's journal segment is made for the first one."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._journal: JournalWriter | None = None

    def report(self, nodeid: str, case_id: str, worker: str) -> pytest.TestReport:
        """Record the case as `infra` and return the report that shows it."""
        run = self._coordinator.run
        if self._journal is None:
            self._journal = JournalWriter(run.directory.journal, "controller", run.redactor.bytes)
        now_us = utc_now_us()
        detail = f"worker lost: the case killed {worker} while it ran there alone"
        self._journal.append(
            EpisodeEnded(
                case_id,
                "controller",
                "infra",
                started_at_us=now_us,
                ended_at_us=now_us,
                duration_s=0.0,
                kind=KIND,
                detail=detail,
            )
        )
        self._journal.append(
            Grade(case_id, "controller", "infra", "skipped", now_us, KIND, {}, detail)
        )
        path = nodeid.split("::", maxsplit=1)[0]
        return pytest.TestReport(
            nodeid=nodeid,
            location=(path, None, nodeid),
            keywords={},
            outcome="skipped",
            longrepr=(path, 0, f"infra: {detail}"),
            when="setup",
        )

    def group_of(self, case_id: str) -> str:
        """The assignment's group of a case, empty for none."""
        assignment = read_assignment(self._coordinator.run.directory.path)
        return next((g.name for g in assignment.groups if case_id in g.cases), "")

    def close(self) -> None:
        """Close the segment, if there is one."""
        if self._journal is not None:
            self._journal.close()
