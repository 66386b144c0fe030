"""Decide which requests and cases are included in measured times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import Outcome


NO_SERVICE = frozenset({"rate", "unsent"})
"""Outcomes of requests that would not be sent if the cases ran one at a time."""


class Span(NamedTuple):
    """The time from an episode's first send to its end, on the host's monotonic clock."""

    first_send_s: float
    end_s: float


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """The sum of token counts; None if no answer reported a count."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def is_completed(outcome: Outcome, n_attempts: int) -> bool:
    """Whether a case got an answer.

    Cases without one do not count as completed: a lane that fails fast must not raise the
    throughput.
    """
    return outcome != "infra" and n_attempts > 0


class MeasuredPart(NamedTuple):
    """The part of a run that the makespan covers. The completed cases in this part are timed.

    Attributes:
        from_us: When this part began, in microseconds since the epoch. Episodes that began earlier
            belong to a part of the run that was interrupted.
        serial_sample: Ids of the cases that ran one at a time, before all others.
        is_nothing: Whether the run has no measured times, as in a replay.
    """

    from_us: int = 0
    serial_sample: frozenset[str] = frozenset()
    is_nothing: bool = False

    def holds(self, case_id: str, began_us: int) -> bool:
        """Whether a case that began at this time belongs to this part."""
        is_in = began_us >= self.from_us and case_id not in self.serial_sample
        return is_in and not self.is_nothing
