"""Which waiting request is served next, and by which lane. Pure: reads states, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.lanes.lane_state import LaneState
    from pytest_ultrapar.lanes.queueing import Waiting, WorkerState


def next_turn(free: Iterable[LaneState]) -> Waiting | None:
    """The turn that has waited longest among those that one of the `free` lanes can serve.

    A turn keeps to its lane while that is up; with its lane paused or out any other of its lane set
    serves it.
    """
    best: Waiting | None = None
    for lane in free:
        down = lane.model.down
        for lane_set in lane.sets:
            turns = lane_set.turns
            if not turns:
                continue
            for wish in (lane, None, *down):
                line = turns.get(wish)
                if line is not None and (best is None or line.first.order < best.order):
                    best = line.first
    return best


def next_open(rotation: Iterable[WorkerState], free: list[LaneState]) -> Waiting | None:
    """The open to serve next on one of the `free` lanes: at home before lent, then by `rotation`.

    Args:
        rotation: All workers, the one longest without a grant first. It is walked at most twice.
        free: Lanes that could take a request now.
    """
    waiting_workers = [worker for worker in rotation if worker.linked]
    for worker in waiting_workers:
        best = _first_of(worker, free, lent=False)
        if best is not None:
            return best
    for worker in waiting_workers:
        if worker.home is not None:
            best = _first_of(worker, free, lent=True)
            if best is not None:
                return best
    return None


def _first_of(worker: WorkerState, free: list[LaneState], *, lent: bool) -> Waiting | None:
    best: Waiting | None = None
    for lane in free:
        lines = worker.linked.get(lane.model)
        if lines is None or worker.is_home(lane) is lent or (lent and not lane.is_lendable):
            continue
        for line in lines:
            if lane in line.lane_set.members and (best is None or line.first.order < best.order):
                best = line.first
    return best


def best_lane(waiting: Waiting, free: Iterable[LaneState]) -> LaneState | None:
    """The lane to serve a request: its own, else a home, the least loaded, the longest unused.

    Returns:
        None when none of the `free` lanes may serve it.
    """
    members = waiting.lane_set.members
    prefers = waiting.prefers
    worker = waiting.worker
    best: LaneState | None = None
    best_key = (True, 0.0, 0)
    if prefers is not None and prefers.is_up:
        return next((lane for lane in free if lane is prefers), None)
    for lane in free:
        if lane not in members:
            continue
        is_lent = not worker.is_home(lane)
        if is_lent and waiting.opens and not lane.is_lendable:
            continue
        key = (is_lent, lane.load, lane.used_order)
        if best is None or key < best_key:
            best, best_key = lane, key
    return best
