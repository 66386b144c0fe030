"""The observations that a controller receives, and the limit changes that it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, LeaseOutcome
from pytest_ultrapar.records import Microseconds

SATURATED = 0.8
"""A success shows that the limit may be higher only if at least this share of the limit is in
use."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One lease that was given back.

    Attributes:
        outcome: The outcome of its request.
        granted_s: When it was granted, in monotonic seconds. A request that was sent before a cut
            shows nothing about the limit after the cut.
        now_s: When it was given back.
        in_flight: How many seats were taken when it was given back, including its own.
        at_grant: How many seats were taken when it was granted, including its own.
        feedback: The feedback about the answer.
        timeout_s: The longest time that the request may take.
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
        """Whether the provider answered, even if it rejected this particular request."""
        return self.outcome in ANSWERED

    @property
    def is_limited(self) -> bool:
        """Whether the provider refused the request because of a limit or congestion."""
        return self._says("cut")

    @property
    def is_troubled(self) -> bool:
        """Whether the request failed, perhaps due to overload. The limit then does not change."""
        return self._says("pause_growth")

    @property
    def is_alone(self) -> bool:
        """Whether no other request was in flight when it was granted.

        Every limit on seats allows this request.
        """
        return self.at_grant == 1

    def _says(self, word: str) -> bool:
        its_class = CLASSES.get(self.outcome)
        return its_class is not None and its_class.controller == word


LIMITS_FILE = "limit-history.jsonl"
"""The file in the run's directory that records the changes."""


class LimitChange(msgspec.Struct, frozen=True):
    """One change of a limit.

    Attributes:
        limit: The name of a limit in the pool, such as `lab/key0`, or the name of a lane.
        t_s: The time of the change, on the host's monotonic clock, as in `attempts`.
        workers: How many requests may be in flight from then on.
        qps: How many requests may be sent per second from then on; null if any number is allowed.
        in_flight: How many requests were in flight at that time.
        reason: The reason for the change, in a few words.
    """

    limit: str
    t_s: float
    workers: int
    qps: float | None
    in_flight: int
    reason: str


class LimitRecord(msgspec.Struct, frozen=True):
    """A change as it is recorded in the file, with its wall-clock time.

    Attributes:
        at_us: The time of the change, UTC.
        host: In a merged run: the name of the host, if it has one. Otherwise None.
    """

    at_us: Microseconds
    change: LimitChange
    host: str | None = None
