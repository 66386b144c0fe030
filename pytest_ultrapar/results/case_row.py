"""One row of `results` as comparing runs needs it; small, for there may be 20,000 of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.graded import GRADED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pytest_ultrapar.records import Outcome


class CaseRow(NamedTuple):
    """A case with its final grade.

    Attributes:
        timed: Whether it counts in makespan and latency: it was answered, in the session that is
            measured, and is not of the serial sample. The times of other rows may mean nothing.
        started_at: First lease, UTC.
        scores: Those that it has, by name; empty unless it was graded.
    """

    case_id: str
    suite: str
    model: str
    outcome: Outcome
    timed: bool
    service_s: float
    duration_s: float
    started_at: datetime
    ended_at: datetime
    tokens_in: int | None
    tokens_out: int | None
    worker: str
    scores: Mapping[str, float]

    @property
    def graded(self) -> bool:
        """Whether it counts in scores."""
        return self.outcome in GRADED
