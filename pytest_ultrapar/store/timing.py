"""Which requests and cases count in times; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import Outcome


NO_SERVICE = frozenset({"rate", "unsent"})
"""Outcomes of requests that a run of one case at a time would not have made."""


class Span(NamedTuple):
    """From an episode's first send to its end, monotonic seconds of the host."""

    first_send_s: float
    end_s: float


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """Their sum; None when no answer said how many there were."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def is_completed(outcome: Outcome, n_attempts: int) -> bool:
    """Whether a case was answered: a lane that fails fast must not look like throughput."""
    return outcome != "infra" and n_attempts > 0


class MeasuredPart(NamedTuple):
    """The part of a run that its makespan is about; a case of it that was completed is timed.

    Attributes:
        from_us: Microseconds since the epoch; episodes that began earlier are of a part of the run
            that was interrupted.
        serial_sample: Ids of the cases that ran one at a time first.
        is_nothing: Whether nothing of the run is measured, as in a replay.
    """

    from_us: int = 0
    serial_sample: frozenset[str] = frozenset()
    is_nothing: bool = False

    def holds(self, case_id: str, began_us: int) -> bool:
        """Whether a case that began then is in it."""
        is_in = began_us >= self.from_us and case_id not in self.serial_sample
        return is_in and not self.is_nothing
