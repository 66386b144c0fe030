"""Which workers are at home on which lanes, and since when a lane may be lent to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.wakes import Wake, WakeQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.lanes.lane_state import LaneState
    from pytest_ultrapar.pool.model import LaneId

HOLD_S = 2.0
"""So long after the first request a lane waits for its home workers before it is lent: worker
processes start within a second or two of each other, and the assignment that the header shows
should
be true from the first request on."""


class Homes(Wake):
    """The homes of an assignment. Wakes when lanes are held for absent workers no longer."""

    __slots__ = ("_has_begun", "_homes", "_is_over", "_lanes", "_spoken", "_wakes")

    def __init__(self, lanes: Mapping[LaneId, LaneState], wakes: WakeQueue) -> None:
        super().__init__()
        self._lanes = lanes
        self._wakes = wakes
        self._homes: dict[str, frozenset[LaneState]] = {}
        self._spoken: set[str] = set()
        self._has_begun = self._is_over = False

    def assign(self, home: Mapping[str, tuple[LaneId, ...]], now_s: float) -> list[LaneState]:
        """Put homes in force. Returns the lanes that may be lent from now on."""
        self._homes = {
            worker: frozenset(self._lanes[lane] for lane in lanes) for worker, lanes in home.items()
        }
        for lane in self._lanes.values():
            lane.unspoken.clear()
        for worker, lanes in home.items():
            if worker not in self._spoken and not self._is_over:
                for lane_id in lanes:
                    self._lanes[lane_id].unspoken[worker] = None
        for lane in self._lanes.values():
            lane.is_lendable = lane.is_lendable and not lane.unspoken
        return self._lendable(now_s)

    def home_of(self, worker: str) -> frozenset[LaneState] | None:
        """The home lanes of a worker; None when it is at home everywhere."""
        return self._homes.get(worker)

    def spoke(self, worker: str, now_s: float) -> list[LaneState]:
        """A worker asked for its first lease. Returns the lanes that may be lent now."""
        if not (self._has_begun or self._is_over):
            self._has_begun = True
            self._wakes.ensure(self, now_s + HOLD_S)
        return self.left(worker, now_s)

    def left(self, worker: str, now_s: float) -> list[LaneState]:
        """No lane waits for this worker (any more). Returns the lanes that may be lent now."""
        self._spoken.add(worker)
        for lane in self._homes.get(worker, ()):
            lane.unspoken.pop(worker, None)
        return self._lendable(now_s)

    def end_hold(self, now_s: float) -> list[LaneState]:
        """The time for workers to come is over. Returns the lanes that may be lent from now on."""
        self._is_over = True
        for lane in self._lanes.values():
            lane.unspoken.clear()
        return self._lendable(now_s)

    def _lendable(self, now_s: float) -> list[LaneState]:
        lent = [lane for lane in self._lanes.values() if not (lane.is_lendable or lane.unspoken)]
        for lane in lent:
            lane.is_lendable = True
            lane.hold_ended_s = now_s
        return lent
