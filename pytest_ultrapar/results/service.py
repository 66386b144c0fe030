"""How long one episode kept its model at work, and when, on the host's monotonic clock; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import EpisodeEnded

NO_SERVICE = frozenset({"rate", "unsent"})
"""Outcomes of requests that a run of one case at a time would not have made."""


class Span(NamedTuple):
    """From an episode's first send to its end, monotonic seconds of the host."""

    first_send_s: float
    end_s: float


def service_s(episode: EpisodeEnded) -> float:
    """Seconds that the episode would have taken alone: its duration without waiting, >= 0.

    Left out are waits for leases (the one before the first request is no part of the duration), our
    own back-off, and requests that were refused for their rate.
    """
    waited_s = sum(max(0.0, each.t_lease_s - each.t_ready_s) for each in episode.attempts)
    refused_s = sum(
        each.t_end_s - each.t_send_s for each in episode.attempts if each.outcome in NO_SERVICE
    )
    return max(0.0, episode.duration_s - waited_s - episode.backoff_s - refused_s)


def span(episode: EpisodeEnded) -> Span | None:
    """When it sent first and when it ended; None for an episode without a request."""
    attempts = episode.attempts
    if not attempts:
        return None
    first_send_s = min(each.t_send_s for each in attempts)
    # Its duration runs from its first lease, which came at `t_lease_s` or a moment later; no term
    # is beyond the true end, and what an episode does after its last answer counts, too.
    by_duration_s = attempts[0].t_lease_s + episode.duration_s
    return Span(first_send_s, max(by_duration_s, *(each.t_end_s for each in attempts)))


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """Their sum; None when no answer said how many there were."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
