"""The wall clock of virtual time."""

from __future__ import annotations


class PlayedDayClock:
    """A wall clock in virtual time: the broker's 0 is `start_s`."""

    __slots__ = ("start_s",)

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def wall_s(self, now_s: float) -> float:
        """The wall time at `now_s`; it runs with the broker's clock."""
        return self.start_s + now_s
