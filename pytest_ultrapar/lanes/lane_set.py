"""The lanes that a request may use, and how long all their seats were taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.lane_state import LaneState
    from pytest_ultrapar.lanes.queueing import Line


class LaneSet:
    """Lanes of one model that some requests are bound to; its clock runs while none has a seat.

    A waiting request notes the clock when it comes and reads it when it goes: the difference is its
    seat wait. That costs nothing per waiting request, however many there are.

    Attributes:
        lanes: In the order of the pool.
        is_metered: Whether any of them counts tokens.
        n_alive: Lanes that are not out.
        n_seated: Lanes that are not out and have a seat free on every limit of their path.
        turns: Lines of turns by the lane they want, None for no wish.
        opens: Lines of opens with at least one request, those that no group lets through included.
    """

    __slots__ = (
        "_full_s",
        "_full_since_s",
        "is_metered",
        "lanes",
        "members",
        "n_alive",
        "n_seated",
        "opens",
        "turns",
    )

    def __init__(self, lanes: tuple[LaneState, ...], now_s: float) -> None:
        self.lanes = lanes
        self.members = frozenset(lanes)
        self.is_metered = any(lane.metered for lane in lanes)
        self.n_alive = sum(not lane.is_out for lane in lanes)
        self.n_seated = sum(lane.n_full == 0 for lane in lanes)
        self.turns: dict[LaneState | None, Line] = {}
        self.opens: dict[Line, None] = {}
        self._full_s = 0.0
        self._full_since_s = now_s

    def full_s(self, now_s: float) -> float:
        """Seconds, up to `now_s`, during which no lane had a seat."""
        return self._full_s if self.n_seated else self._full_s + (now_s - self._full_since_s)

    def lane_filled(self, now_s: float) -> None:
        """A lane of the set lost its last seat, or is out."""
        self.n_seated -= 1
        if self.n_seated == 0:
            self._full_since_s = now_s

    def lane_freed(self, now_s: float) -> None:
        """A lane of the set has a seat again."""
        if self.n_seated == 0:
            self._full_s += now_s - self._full_since_s
        self.n_seated += 1
