"""Which waiting request is served next, and by which lane. Pure: reads states, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_ultrapar.lanes.lane_state import LaneState, ModelState
    from pytest_ultrapar.lanes.queueing import Waiting, WorkerState


def next_turn(free: dict[ModelState, list[LaneState]]) -> Waiting | None:
    """The turn that has waited longest among those that one of the `free` lanes can serve.

    A turn keeps to its lane while that is up; with its lane paused or out any other of its lane set
    serves it.
    """
    best: Waiting | None = None
    for model, lanes in free.items():
        if not model.n_turns:
            continue
        for lane in lanes:
            for lane_set in lane.sets:
                turns = lane_set.turns
                if not turns:
                    continue
                for wish in (lane, None, *model.down):
                    line = turns.get(wish)
                    if line is not None and (best is None or line.first.order < best.order):
                        best = line.first
    return best


def next_open(
    rotation: Collection[WorkerState], free: dict[ModelState, list[LaneState]]
) -> Waiting | None:
    """The open to serve next on one of the `free` lanes: at home before lent, then by `rotation`.

    Args:
        rotation: All workers, the one longest without a grant first. It is walked at most twice.
        free: Lanes that could take a request now, by model.
    """
    for worker in rotation:
        if worker.linked:
            best = _first_of(worker, free, lent=False)
            if best is not None:
                return best
    for worker in rotation:
        if worker.linked and worker.home is not None:
            best = _first_of(worker, free, lent=True)
            if best is not None:
                return best
    return None


def _first_of(
    worker: WorkerState, free: dict[ModelState, list[LaneState]], *, lent: bool
) -> Waiting | None:
    home = worker.home
    best: Waiting | None = None
    for model, lines in worker.linked.items():
        lanes = free.get(model)
        if lanes is None:
            continue
        for line in lines:
            first = line.first
            if best is not None and best.order < first.order:
                continue
            members = line.lane_set.members
            for lane in lanes:
                is_lent = home is not None and lane not in home
                if is_lent is lent and lane in members and (lane.is_lendable or not lent):
                    best = first
                    break
    return best


def other_lane(failed: LaneState, lanes: Iterable[LaneState], now_s: float) -> LaneState | None:
    """The lane to try a request on that failed on another: one that is up, at best free now.

    Returns:
        None when no other is up.
    """
    up = [lane for lane in lanes if lane.is_up and lane is not failed]
    return min(
        up, key=lambda lane: (not lane.is_free(now_s), lane.load, lane.used_order), default=None
    )


def best_lane(waiting: Waiting, free: Iterable[LaneState]) -> LaneState | None:
    """The lane to serve a request: its own, else a home, the least loaded, the longest unused.

    Args:
        waiting: The request.
        free: Lanes of its model that could take a request now.

    Returns:
        None when none of the `free` lanes may serve it.
    """
    prefers = waiting.prefers
    if prefers is not None and prefers.is_up:
        return next((lane for lane in free if lane is prefers), None)
    members = waiting.lane_set.members
    home = waiting.worker.home
    best: LaneState | None = None
    best_key = (True, 0.0, 0)
    for lane in free:
        if lane not in members:
            continue
        is_lent = home is not None and lane not in home
        if is_lent and waiting.opens and not lane.is_lendable:
            continue
        key = (is_lent, lane.load, lane.used_order)
        if best is None or key < best_key:
            best, best_key = lane, key
    return best
