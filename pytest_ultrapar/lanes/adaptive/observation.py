"""What is shown to a controller that estimates a limit."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ultrapar.lanes.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.lanes.protocol import NOTHING_TOLD, LeaseOutcome, Told

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
        told: What the answer said.
    """

    outcome: LeaseOutcome
    granted_s: float
    now_s: float
    in_flight: int
    at_grant: int
    told: Told = NOTHING_TOLD

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
