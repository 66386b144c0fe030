"""Wait for the moment of a fault: by signs that a run shows, never by time alone."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.system.files import TEMPORARY_SUFFIX
from tests.torture.project import N_MODULES, WITNESS, Witness
from tests.torture.session import HANG_S, POLL_S, pids_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.kinds import Moment
    from tests.torture.plan import Plan, Strike
    from tests.torture.session import Session

_FIRST_TABLE = "results.parquet"
_LAST_TABLE = "summary.json"


class Watch:
    """Follow one session from outside.

    Args:
        session: The session, which has just begun.
        plan: Its round.
        n_graded_before: Cases that earlier sessions graded; they are not sent again.
    """

    def __init__(self, session: Session, plan: Plan, n_graded_before: int) -> None:
        self._session = session
        self._plan = plan
        self._n_left = plan.n_cases - n_graded_before
        path = session.folder / WITNESS
        size = path.stat().st_size if path.exists() else 0
        self._witness = Witness(path, size)
        self._seen: Counter[str] = Counter()

    def wait_for(self, strike: Strike) -> bool:
        """Wait for the moment; return False if the session ended before."""
        deadline_s = time.monotonic() + HANG_S
        while not self._is_now(strike.moment, strike.share):
            if self._session.code is not None or time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        time.sleep(strike.delay_s)
        return self._session.code is None

    def _is_now(self, moment: Moment, share: float) -> bool:
        for line in self._witness.new():
            self._seen[line.event] += 1
        plan, seen, n_processes = self._plan, self._seen, max(self._plan.workers, 1)
        signs: dict[Moment, Callable[[], bool]] = {
            "process": lambda: True,
            "compaction process": lambda: self._n_pids("compaction") > 0,
            "broker process": lambda: self._n_pids("broker") > 0,
            "first worker": lambda: self._n_pids("worker") > 0,
            "last worker": lambda: self._n_pids("worker") >= plan.workers,
            "first import": lambda: seen["import"] > 0,
            "last import": lambda: seen["import"] >= N_MODULES * n_processes,
            "first collected": lambda: seen["collected"] > 0,
            "last collected": lambda: seen["collected"] >= n_processes,
            "some asked": lambda: seen["ask"] >= max(share * self._n_left * plan.turns, 1),
            "some graded": lambda: seen["graded"] >= max(share * self._n_left, 1),
            # If earlier sessions graded all cases, this one still has to start.
            "all graded": lambda: (
                seen["collected"] >= n_processes and seen["graded"] >= self._n_left
            ),
            "temporary file": lambda: self._n_written(f".*{TEMPORARY_SUFFIX}") > 0,
            "first table": lambda: self._n_written(_FIRST_TABLE) > 0,
            "last table": lambda: self._n_written(_LAST_TABLE) > 0,
        }
        return signs[moment]()

    def _n_pids(self, role: str) -> int:
        return len(pids_of(self._session.folder).get(role, []))

    def _n_written(self, pattern: str) -> int:
        """The number of files of that name that this session wrote; 0 while cases are left."""
        if self._seen["graded"] < self._n_left:
            return 0
        directory = self._session.folder / ".ultrapar" / "latest"
        return sum(_written_ns(path) > self._session.started_ns for path in directory.glob(pattern))


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
