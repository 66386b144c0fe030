"""What a controller sees of its requests, and what it changed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, LeaseOutcome
from pytest_ultrapar.records import Microseconds

SATURATED = 0.8
"""Share of a limit that must be in use for a success to say that more may be possible."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One lease that came back.

    Attributes:
        granted_s: When it was granted, monotonic seconds: what was sent before a cut says nothing
            about the limit after it.
        now_s: When it came back.
        in_flight: Seats taken when it came back, its own included.
        at_grant: Seats taken when it was granted, its own included.
        feedback: What the answer said.
        timeout_s: How long it may take.
    """

    outcome: LeaseOutcome
    granted_s: float
    now_s: float
    in_flight: int
    at_grant: int
    feedback: Feedback = NO_FEEDBACK
    timeout_s: float = math.inf

    @property
    def is_served(self) -> bool:
        """Whether the provider did its work, whatever it thought of the request."""
        return self.outcome in ANSWERED

    @property
    def is_limited(self) -> bool:
        """Whether the provider said that this was too much."""
        return self._says("cut")

    @property
    def is_troubled(self) -> bool:
        """Whether something else may be overloaded: no reason to cut, and none to grow."""
        return self._says("pause_growth")

    @property
    def is_lone(self) -> bool:
        """Whether nothing else was in flight: nobody has fewer seats than that."""
        return self.at_grant == 1

    def _says(self, word: str) -> bool:
        its_class = CLASSES.get(self.outcome)
        return its_class is not None and its_class.controller == word


LIMITS_FILE = "limit-history.jsonl"
"""Of the changes, in the run's directory."""


class LimitChange(msgspec.Struct, frozen=True):
    """One change of a limit.

    Attributes:
        limit: The name of a limit of the pool, such as `lab/key0`, or of a lane.
        t_s: When, on the monotonic clock of the host, as in `attempts`.
        workers: Requests in flight allowed from then on.
        qps: Sends per second allowed from then on; without a value any number.
        in_flight: Requests in flight at that moment.
        reason: Why it changed, in a few words.
    """

    limit: str
    t_s: float
    workers: int
    qps: float | None
    in_flight: int
    reason: str


class LimitRecord(msgspec.Struct, frozen=True):
    """A change as the file holds it, with the time that people read.

    Attributes:
        at_us: When, UTC.
        host: In a run that was merged of several: whose limit it was, where the host has a name.
    """

    at_us: Microseconds
    change: LimitChange
    host: str | None = None
