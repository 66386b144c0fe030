"""Seats by what a server says of its own queue."""

from __future__ import annotations

import math

from pytest_ultrapar.lanes.adaptive.observation import SATURATED

MOST_WAITING = 0.05
"""Of the running requests so many may wait: enough that the server never lacks work."""
GROWTH = 1.25


class QueueSearch:
    """Keeps a server's queue near empty and the server busy. Pure.

    Attributes:
        seats: What it holds; None until the server has said something.
    """

    __slots__ = ("seats",)

    def __init__(self) -> None:
        self.seats: float | None = None

    def told(self, running: float, waiting: float, *, seats: int, in_flight: int) -> None:
        """Take a report of the server into account.

        Args:
            running: Requests that it works on, of all its clients.
            waiting: Requests in its queue.
            seats: Seats until now.
            in_flight: How many of them are taken.
        """
        held = float(seats)
        allowed = max(1.0, MOST_WAITING * running)
        if waiting > allowed:
            # What waits is too much; never less than half, for the report may be a second old.
            held = max(held / 2.0, min(held, in_flight) - (waiting - allowed))
        elif in_flight >= SATURATED * seats:
            held = math.ceil(held * GROWTH)
        self.seats = max(1.0, held)

    def cut(self, seats: float) -> None:
        """A refusal says that these are enough."""
        if self.seats is not None:
            self.seats = min(self.seats, seats)
