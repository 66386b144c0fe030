"""What the statistics need to know of each graded case; small, for there may be 20,000 of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.graded import GRADED
from pytest_ultrapar.results.service import Span, service_s, span, total_tokens
from pytest_ultrapar.results.timed import MeasuredPart, is_completed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade, Outcome

WHOLE_RUN = MeasuredPart()


class CaseMeasure(NamedTuple):
    """One graded case.

    Attributes:
        cell: The case's values of the names that the summary counts by, as text.
        span: When it ran, monotonic seconds; None if it sent nothing or does not count in the
            makespan (its episode is of an earlier, interrupted part of the run, or of the serial
            sample).
        completed: Whether it was answered; see `timed.is_completed`.
        serial_span: When it ran, for a case of the serial sample.
        cluster: `Case.cluster`.
        serial_s: What `serial_sample.with_serial_times` makes of it.
    """

    case_id: str
    suite: str
    model: str
    cell: tuple[str, ...]
    outcome: Outcome
    completed: bool
    span: Span | None
    service_s: float
    duration_s: float
    n_attempts: int
    tokens_in: int | None
    tokens_out: int | None
    scores: Mapping[str, float]
    serial_span: Span | None = None
    serial_s: float | None = None
    cluster: str | None = None

    @property
    def timed(self) -> bool:
        """Whether it counts in throughput and latencies."""
        return self.completed and self.span is not None


def measure_case(
    case: Case,
    grade: Grade,
    episode: EpisodeEnded | None,
    *,
    summary_by: Sequence[str],
    part: MeasuredPart = WHOLE_RUN,
) -> CaseMeasure:
    """The measure of one graded case.

    Args:
        case: The planned case.
        grade: The one that stands.
        episode: The one it is about, if any.
        summary_by: `model`, `suite`, `repeat` or names of parameters.
        part: Of the run, which counts in the makespan.
    """
    ran = span(episode) if episode is not None else None
    n_attempts = len(episode.attempts) if episode is not None else 0
    is_measured = episode is not None and part.holds(case.case_id, episode.started_at_us)
    return CaseMeasure(
        case_id=case.case_id,
        suite=case.suite,
        model=case.model,
        cell=tuple(cell_value(case, name) for name in summary_by),
        outcome=grade.outcome,
        completed=is_completed(grade.outcome, n_attempts),
        span=ran if is_measured else None,
        service_s=service_s(episode) if episode is not None else 0.0,
        duration_s=episode.duration_s if episode is not None else 0.0,
        n_attempts=n_attempts,
        tokens_in=_tokens(episode, "in"),
        tokens_out=_tokens(episode, "out"),
        scores=grade.scores if grade.outcome in GRADED else {},
        serial_span=ran if case.case_id in part.serial_sample else None,
        cluster=case.cluster,
    )


def cell_value(case: Case, name: str) -> str:
    """What a case has of one of the names that the summary counts by, as text."""
    match name:
        case "model":
            return case.model
        case "suite":
            return case.suite
        case "repeat":
            return str(case.repeat)
        case _:
            return str(case.params.get(name, ""))


def _tokens(episode: EpisodeEnded | None, direction: str) -> int | None:
    if episode is None:
        return None
    if direction == "in":
        return total_tokens(attempt.tokens_in for attempt in episode.attempts)
    return total_tokens(attempt.tokens_out for attempt in episode.attempts)
