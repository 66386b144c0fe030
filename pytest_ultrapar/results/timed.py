"""Which cases count in makespan, throughput and latencies: one rule for all readers; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_ultrapar.records import Outcome


def is_completed(outcome: Outcome, n_attempts: int) -> bool:
    """Whether a case was answered: a lane that fails fast must not look like throughput."""
    return outcome != "infra" and n_attempts > 0


class MeasuredPart(NamedTuple):
    """The part of a run that its makespan is about; a case of it that was completed is timed.

    Attributes:
        from_us: Microseconds since the epoch; episodes that began earlier are of a part of the run
            that was interrupted.
        serial_sample: Ids of the cases that ran one at a time first.
    """

    from_us: int = 0
    serial_sample: frozenset[str] = frozenset()

    def holds(self, case_id: str, began_us: int) -> bool:
        """Whether a case that began then is in it."""
        return began_us >= self.from_us and case_id not in self.serial_sample
