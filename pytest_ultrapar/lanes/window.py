"""A bound on requests in flight: the cap, who decides it, and the gate that holds it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from pytest_ultrapar.lanes.protocol import LeaseOutcome


@dataclass(frozen=True, slots=True)
class Observation:
    """What a controller learns when a lease comes back.

    Attributes:
        granted_s: When the lease was granted, so that a cut can ignore requests sent before the
            last cut.
        in_flight: Seats that were taken on the window, the returning one included.
    """

    outcome: LeaseOutcome
    granted_s: float
    now_s: float
    in_flight: int
    retry_after_s: float | None = None


class CapController(Protocol):
    """Decides how many seats a window has; pure, no clock of its own."""

    def cap(self) -> float:
        """Seats allowed now: a whole number >= 1, or infinity."""
        ...

    def observe(self, observation: Observation) -> None:
        """Take a returned lease into account; the cap may differ afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCap:
    """The cap as configured, for ever.

    Attributes:
        workers: Seats, >= 1; None is unlimited.
    """

    workers: int | None

    def cap(self) -> float:
        """`workers`, or infinity."""
        return math.inf if self.workers is None else self.workers

    def observe(self, observation: Observation) -> None:
        """Nothing: in `fixed` mode a 429 pauses the lane and never changes a cap."""


class Window:
    """The gate: counts seats taken and refuses to go above the cap.

    A controller that lowers its cap below what is in flight takes nothing back; the gate stays shut
    until enough seats have returned.

    Attributes:
        in_flight: Seats taken now.
        peak: Most seats ever taken at once.
        cap: Seats allowed now, infinity when unlimited.
    """

    __slots__ = ("_controller", "cap", "in_flight", "peak")

    def __init__(self, controller: CapController) -> None:
        self._controller = controller
        self.cap = controller.cap()
        self.in_flight = 0
        self.peak = 0

    @property
    def is_full(self) -> bool:
        """Whether no seat is free."""
        return self.in_flight >= self.cap

    @property
    def load(self) -> float:
        """Share of the seats taken, 0 to 1; 0 when unlimited."""
        return self.in_flight / self.cap

    def take(self) -> None:
        """Take one seat.

        Raises:
            ValueError: When none is free.
        """
        if self.in_flight >= self.cap:
            msg = f"all {self.cap:g} seats are taken"
            raise ValueError(msg)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def give_back(self) -> None:
        """Return one seat.

        Raises:
            ValueError: When none was taken.
        """
        if self.in_flight == 0:
            msg = "no seat is taken"
            raise ValueError(msg)
        self.in_flight -= 1

    def observe(self, observation: Observation) -> None:
        """Let the controller see a returned lease and adopt its cap."""
        self._controller.observe(observation)
        self.cap = self._controller.cap()
