"""How long an episode kept its model at work, and which cases count in times; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import EpisodeEnded, Outcome


NO_SERVICE = frozenset({"rate", "unsent"})
"""Outcomes of requests that a run of one case at a time would not have made."""


class Span(NamedTuple):
    """From an episode's first send to its end, monotonic seconds of the host."""

    first_send_s: float
    end_s: float


class Took(NamedTuple):
    """What an episode took.

    Attributes:
        started_at_us: Its first lease, microseconds since the epoch.
        span: When it ran; None if it sent nothing.
        service_s: Seconds that it would have taken alone: its duration without waiting, >= 0. Left
            out are waits for leases (the one before the first request is no part of the duration),
            our own back-off, and requests that were refused for their rate.
        duration_s: From its first lease to its end.
        n_attempts: Requests that were sent to the case's own model; the tokens are theirs.
    """

    started_at_us: int
    span: Span | None
    service_s: float
    duration_s: float
    n_attempts: int
    tokens_in: int | None
    tokens_out: int | None


def time_of(episode: EpisodeEnded) -> Took:
    """What an episode took."""
    waited_s = refused_s = 0.0
    for each in episode.attempts:
        waited_s += max(0.0, each.t_lease_s - each.t_ready_s)
        if each.outcome in NO_SERVICE:
            refused_s += each.t_end_s - each.t_send_s
    sent = episode.own_sent
    return Took(
        episode.started_at_us,
        span(episode),
        max(0.0, episode.duration_s - waited_s - episode.backoff_s - refused_s),
        episode.duration_s,
        len(sent),
        total_tokens([each.tokens_in for each in sent]),
        total_tokens([each.tokens_out for each in sent]),
    )


def span(episode: EpisodeEnded) -> Span | None:
    """When it sent first and when it ended; None for an episode without a request."""
    attempts = episode.attempts
    if not attempts:
        return None
    first_send_s = min([each.t_send_s for each in attempts])
    # Its duration runs from its first lease, which came at `t_lease_s` or a moment later; no term
    # is beyond the true end, and what an episode does after its last answer counts, too.
    by_duration_s = attempts[0].t_lease_s + episode.duration_s
    return Span(first_send_s, max([by_duration_s, *[each.t_end_s for each in attempts]]))


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
