"""What a proxy saw of a run, and the figures that a run is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REFUSALS = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the proxy logged it.

    Attributes:
        start_s: When its first byte had come, Unix seconds.
        end_s: When its answer was sent.
        why: The proxy's own word on how it ended, such as HAProxy's termination state.
    """

    start_s: float
    end_s: float
    status: int
    why: str = ""

    @property
    def refused(self) -> bool:
        return self.status in REFUSALS


def in_order(requests: Sequence[Seen]) -> tuple[Seen, ...]:
    """The requests by the time they came; a proxy logs them by the time they ended."""
    return tuple(sorted(requests, key=lambda seen: (seen.start_s, seen.end_s)))


def span_s(requests: Sequence[Seen]) -> float:
    """Seconds from the first request to the last answer; 0 where there was none."""
    if not requests:
        return 0.0
    return max(seen.end_s for seen in requests) - min(seen.start_s for seen in requests)


def n_refused(requests: Sequence[Seen]) -> int:
    """How many were refused."""
    return sum(seen.refused for seen in requests)


def after_first_round_trip(requests: Sequence[Seen]) -> tuple[Seen, ...]:
    """The requests that came after the first answer that was no refusal; none without such."""
    first_s = min((seen.end_s for seen in requests if not seen.refused), default=float("inf"))
    return tuple(seen for seen in requests if seen.start_s > first_s)


def refused_share(requests: Sequence[Seen]) -> float:
    """Refused after the first round trip, as a share of all requests of the run."""
    if not requests:
        return 0.0
    return n_refused(after_first_round_trip(requests)) / len(requests)
