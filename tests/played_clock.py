"""The wall clock and the boot clock of virtual time."""

from __future__ import annotations

from pytest_ultrapar.clock import Instant


class PlayedDayClock:
    """Clocks that agree, for virtual time: the broker's 0 is `start_s` by the wall clock."""

    __slots__ = ("start_s",)

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def at(self, now_s: float) -> Instant:
        """Both clocks stand `now_s` after the start."""
        return Instant(self.start_s + now_s, now_s, "played")
