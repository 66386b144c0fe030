"""A bound on requests in flight: the gate that holds a cap, whoever decides it."""

from __future__ import annotations


class Window:
    """The gate: counts seats taken and refuses to go above the cap.

    A cap that is lowered below what is in flight takes nothing back; the gate stays shut until
    enough seats have returned.

    Attributes:
        in_flight: Seats taken now.
        peak: Most seats ever taken at once.
        cap: Seats allowed now, a whole number >= 1, infinity when unlimited.
    """

    __slots__ = ("cap", "in_flight", "peak")

    def __init__(self, cap: float) -> None:
        self.cap = cap
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
