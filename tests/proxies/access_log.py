"""A proxy's log of a run, and the figures by which a run is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REFUSALS = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, as the proxy logged it.

    Attributes:
        start_s: The arrival of its first byte, in Unix seconds.
        end_s: The time at which its answer was sent.
        why: The proxy's word for its end, such as HAProxy's termination state.
    """

    start_s: float
    end_s: float
    status: int
    why: str = ""

    @property
    def refused(self) -> bool:
        return self.status in REFUSALS


def in_order(requests: Sequence[Seen]) -> tuple[Seen, ...]:
    """The requests in order of arrival; a proxy logs them in order of their ends."""
    return tuple(sorted(requests, key=lambda seen: (seen.start_s, seen.end_s)))


def span_s(requests: Sequence[Seen]) -> float:
    """Seconds from the first request to the last answer; 0 without an answer."""
    if not requests:
        return 0.0
    return max(seen.end_s for seen in requests) - min(seen.start_s for seen in requests)


def n_refused(requests: Sequence[Seen]) -> int:
    """The number of refused requests."""
    return sum(seen.refused for seen in requests)


def after_first_round_trip(requests: Sequence[Seen]) -> tuple[Seen, ...]:
    """The requests after the first answer that was not a refusal; empty if all were refused."""
    first_s = min((seen.end_s for seen in requests if not seen.refused), default=float("inf"))
    return tuple(seen for seen in requests if seen.start_s > first_s)


def refused_share(requests: Sequence[Seen]) -> float:
    """The share of all requests of the run that were refused after the first round trip."""
    if not requests:
        return 0.0
    return n_refused(after_first_round_trip(requests)) / len(requests)
