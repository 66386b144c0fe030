"""Brings waiting requests and free lanes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.actions import Action, Grant, Refusal
from pytest_ultrapar.lanes.choice import best_lane, next_open, next_turn
from pytest_ultrapar.lanes.deferral import decide_again, defers
from pytest_ultrapar.lanes.protocol import Lease
from pytest_ultrapar.lanes.queueing import HeldLease, Line
from pytest_ultrapar.lanes.refusals import all_out
from pytest_ultrapar.lanes.token_use import reserve

if TYPE_CHECKING:
    from collections import OrderedDict

    from pytest_ultrapar.lanes.episodes import OpenEpisodes
    from pytest_ultrapar.lanes.groups import GroupBook
    from pytest_ultrapar.lanes.lane_state import LaneState, ModelState
    from pytest_ultrapar.lanes.lane_table import LaneTable
    from pytest_ultrapar.lanes.queueing import Waiting, WorkerState


class Dispatcher:
    """Grants and refuses waiting requests, and collects what to tell whom.

    Attributes:
        actions: What was decided since the broker last took it away.
    """

    def __init__(
        self,
        table: LaneTable,
        groups: GroupBook,
        episodes: OpenEpisodes,
        rotation: OrderedDict[str, WorkerState],
    ) -> None:
        self._table = table
        self._groups = groups
        self._episodes = episodes
        self._rotation = rotation
        self._n_leases = 0
        self.actions: list[Action] = []

    def serve_at_once(self, waiting: Waiting, now_s: float) -> bool:
        """Grant a request that has just come, if a lane is free for it.

        Only right while nothing has changed since the last `dispatch`: then nobody else can use a
        lane that is free, so nobody is overtaken.
        """
        if waiting.clock.n_seated == 0:
            return False
        free = [lane for lane in waiting.lane_set.lanes if lane.is_free(now_s)]
        while (lane := best_lane(waiting, free)) is not None:
            if lane.metered and defers(waiting, lane, self._table.changed, now_s):
                free.remove(lane)
                continue
            waiting.stop_deferring()
            self._grant(waiting, lane, now_s)
            return True
        return False

    def enqueue(self, waiting: Waiting) -> None:
        """Let a request wait in its line."""
        lane_set, worker, model = waiting.lane_set, waiting.worker, waiting.model
        line: Line | None
        if waiting.opens:
            key = (lane_set, waiting.group)
            line = worker.lines.get(key)
            if line is None:
                line = Line(model, lane_set, worker=worker, group=waiting.group)
                worker.lines[key] = line
        else:
            wish = waiting.prefers
            line = lane_set.turns.get(wish) or Line(model, lane_set, wish=wish)
        line.join(waiting)

    def watch(self, waiting: Waiting, now_s: float) -> None:
        """Wake up when a rate that keeps the request waiting is ready."""
        if waiting.clock.n_seated:
            for lane in waiting.lane_set.lanes:
                self._table.watch(lane, now_s)

    def dispatch(self, now_s: float) -> None:
        """Serve all that changed lanes can serve: turns first, then opens."""
        decide_again(self._table.changed)
        looked_at = [lane for lane in self._table.changed if lane.model.n_waiting]
        self._table.changed.clear()
        free = looked_at
        while free := [lane for lane in free if lane.model.n_waiting and lane.is_free(now_s)]:
            by_model: dict[ModelState, list[LaneState]] = {}
            for lane in free:
                by_model.setdefault(lane.model, []).append(lane)
            waiting = next_turn(by_model) or next_open(self._rotation.values(), by_model)
            if waiting is None:
                break
            served_by = best_lane(waiting, by_model[waiting.model])
            assert served_by is not None
            if served_by.metered and defers(waiting, served_by, self._table.changed, now_s):
                continue
            assert waiting.line is not None
            waiting.line.leave(waiting)
            self._grant(waiting, served_by, now_s)
        for lane in looked_at:
            if lane.model.n_waiting:
                self._table.watch(lane, now_s)

    def refuse(self, line: Line, reason: str) -> None:
        """Refuse all requests of a line."""
        for waiting in line.requests():
            line.leave(waiting)
            if waiting.probes is not None:
                waiting.probes.probe_over()
            refusal = Refusal(waiting.worker.name, waiting.request.request_id, reason)
            self.actions.append(refusal)

    def refuse_without_lane(self) -> None:
        """Refuse all requests that only lanes which went out could have served."""
        lanes, self._table.gone = self._table.gone, []
        for lane_set in {lane_set: None for lane in lanes for lane_set in lane.sets}:
            if lane_set.n_alive:
                continue
            for line in [*lane_set.turns.values(), *lane_set.opens]:
                self.refuse(line, all_out(line.model.name, lane_set.lanes))

    def _grant(self, waiting: Waiting, lane: LaneState, now_s: float) -> None:
        table, worker, request = self._table, waiting.worker, waiting.request
        seat_wait_s = rate_wait_s = 0.0
        if now_s > waiting.since_s:
            seat_wait_s, rate_wait_s = _split_wait(waiting, lane, now_s)
        table.take(lane, now_s)
        table.courses.sent(lane.model.name, request.case_id)
        self._n_leases += 1
        at_grant = lane.in_flight if lane.counted is None else lane.counted.window.in_flight
        held = HeldLease(lane, now_s, at_grant, waiting.probes)
        worker.leases[self._n_leases] = held
        tokens = 0
        if lane.metered:
            tokens = request.tokens
            held.reserved = reserve(lane, tokens, now_s)
        send_by_s = now_s + lane.send_by_s
        table.begin_term(lane, self._n_leases, worker, send_by_s)
        if lane.health.on_trial:
            table.begin_probe(lane, now_s, send_by_s)
        if request.after is not None:
            table.count_retry(request.after, lane)
        lease = Lease(
            self._n_leases,
            lane.lane.lane_id,
            now_s,
            send_by_s,
            seat_wait_s,
            rate_wait_s,
            lane.in_flight,
            tokens,
            lane.instance.is_answering(now_s),
        )
        self.actions.append(Grant(worker.name, request.request_id, lease))
        if waiting.opens:
            self._rotation.move_to_end(worker.name)
            self._episodes.open(worker, request.case_id, waiting.group)
            if waiting.group is not None:
                self._groups.refresh(waiting.group, now_s)


def _split_wait(waiting: Waiting, lane: LaneState, now_s: float) -> tuple[float, float]:
    """Seconds waited for seats and for rates or pauses; counts them on the lane by what bound it.

    What is left after the time its group let nobody start, the time the lane was held for its home
    workers, and the time all seats were taken can only have been a rate or a pause: the broker
    never leaves a free lane and a request for it side by side.
    """
    waited_s = now_s - waiting.since_s
    parked_s = waiting.parked_s
    if parked_s > 0:
        lane.count_wait("retry budget", parked_s)
        waited_s -= parked_s
    if waiting.opens and waiting.group is not None:
        shut_s = min(waited_s, waiting.group.shut_s(now_s) - waiting.shut_s)
        if shut_s > 0:
            lane.count_wait("group", shut_s)
            waited_s -= shut_s
    # Sums of differences round: a wait of nothing may come out as minus a few 1e-14.
    seat_wait_s = max(0.0, min(waited_s, waiting.clock.full_s(now_s) - waiting.full_s))
    if seat_wait_s > 0:
        lane.count_wait(lane.seat_label, seat_wait_s)
        waited_s -= seat_wait_s
    if waiting.opens and lane.hold_ended_s > waiting.since_s and not waiting.worker.is_home(lane):
        held_s = min(waited_s, lane.hold_ended_s - waiting.since_s)
        if held_s > 0:
            lane.count_wait("home", held_s)
            waited_s -= held_s
    if waited_s > 0:
        lane.count_wait(lane.rate_label or lane.seat_label, waited_s)
    return seat_wait_s, max(0.0, waited_s) + parked_s
