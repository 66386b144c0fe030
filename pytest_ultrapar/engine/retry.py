"""When to try again: the only retry layer there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

    from pytest_ultrapar.lanes.protocol import LeaseOutcome

Verdict = Literal["again", "give_up", "refused", "bad_request"]

# The lane pauses or goes out by the broker's rule, so these cost the episode no attempt: its next
# lease comes when a lane of the model is usable again, or never (`NoLaneError`).
_THE_LANES_FAULT: frozenset[LeaseOutcome] = frozenset(
    {"rate", "quota", "auth", "not_found", "connect"}
)
_BASE_S = 1.0
_CAP_S = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one turn is tried.

    Attributes:
        max_attempts: Failures of the request's own (transport, time-out, 5xx, malformed) per turn
            before the case is `infra`, >= 1. With 1 nothing is tried again, not even after 429.
    """

    max_attempts: int = 3

    def decide(self, outcome: LeaseOutcome, n_failed: int) -> Verdict:
        """What to do after a failed attempt.

        Args:
            outcome: What the attempt ended with, not `ok`.
            n_failed: Failures of the request's own in this turn so far, this one included.
        """
        if outcome == "refused":
            return "refused"
        if outcome == "bad_request":
            return "bad_request"
        if self.max_attempts == 1:
            return "give_up"
        if outcome in _THE_LANES_FAULT:
            return "again"
        return "again" if n_failed < self.max_attempts else "give_up"

    def counts(self, outcome: LeaseOutcome) -> bool:
        """Whether an attempt with this outcome counts against `max_attempts`."""
        return outcome not in _THE_LANES_FAULT

    def backoff_s(self, n_failed: int, rng: random.Random) -> float:
        """Seconds to wait before the next attempt: full jitter, U(0, min(30, 1 * 2^(n-1))).

        Source: the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015), "full jitter".
        """
        if n_failed == 0:
            return 0.0
        return rng.uniform(0.0, min(_CAP_S, _BASE_S * 2 ** (n_failed - 1)))
