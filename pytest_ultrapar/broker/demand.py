"""A host's demand for units of the limits that hosts share.

It is computed once a second, not for each request. It includes not only waiting requests, but also
cases that could be claimed. Otherwise no host would ever start. A host without a share would claim
no cases, have no waiting requests, and therefore get no share.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.shares import BUDGET_ROW, SEATS_ROW, GrantedUnits, Row, SharedTokens
from pytest_ultrapar.pool.model import LIMIT_KINDS, LaneId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_ultrapar.broker.groups import GroupState
    from pytest_ultrapar.broker.lane_table import LaneTable
    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.limits import LimitState
    from pytest_ultrapar.broker.waiting import WorkerState

TELLING_ANSWERS = 5
"""The duration of an answer is estimated only from at least this many answers."""
ROOM = 1.5
"""A margin: answers may become faster by up to this factor. If a host's demand is too low, the host
runs out of units. If the demand is too high, the host only gets more units that no other host
wants."""
SOON_S = 10.0
"""A host requests the units of counted rows (`rpd`, `tpd` and `budget`) that it could spend in this
many seconds."""
LOOKED_FOR = 2
"""An estimated limit may grow by up to this factor before shares are renewed."""
PAUSED_S = 2.0
"""If a lane stays paused for more than this many seconds, the host requests no units for it yet:
shares are renewed before the pause ends."""


class LaneDemand(msgspec.Struct, frozen=True):
    """A host's demand for one lane.

    Attributes:
        requests: How many requests the host could have in flight on the lane.
        unit: The smallest useful share of a row that counts tokens: the largest reservation that a
            request is waiting for. If no request is waiting, it is the last reservation; 1 without
            any reservation.
    """

    requests: int
    unit: int = 1


class RowDemand(msgspec.Struct, frozen=True):
    """A host's demand for one row of a limit.

    Attributes:
        units: All units that the host could use, including the units that it holds. For counted
            rows (`rpd`, `tpd` and `budget`): the units that it could spend soon.
        unit: The smallest useful share above 0; at least 1.
    """

    units: int
    unit: int = 1


class HostDemand(msgspec.Struct, frozen=True):
    """A host's demand for all lanes and rows."""

    lanes: dict[LaneId, LaneDemand]
    rows: dict[Row, RowDemand]


def wants_of(
    table: LaneTable,
    workers: Collection[WorkerState],
    unclaimed: Mapping[str, int],
    bears: Mapping[LaneId, float],
    now_s: float,
    *,
    groups: Mapping[GroupState, int],
) -> HostDemand:
    """A host's current demand. `LaneBroker.wants` describes the arguments."""
    of_model, largest, costliest = _demand(table, workers, unclaimed)
    of_lane = {lane: of_model[lane.model.name] for lane in table.lanes.values()}
    demand = _add_groups(table, workers, groups, of_model, of_lane)
    lanes = {lane: _usable(lane, n, bears, now_s) for lane, n in of_lane.items()}
    units = {lane: _unit(lane, largest[lane.model.name]) for lane in lanes}
    spread = _spread(lanes, demand)
    rows: dict[Row, RowDemand] = {}
    for row in table.shared:
        limit = table.limit(row.limit)
        n: float = _on_limit(limit, lanes, demand)
        if row.word not in (SEATS_ROW, BUDGET_ROW):
            n = min(n, sum(lanes[lane] * spread[lane] for lane in limit.lanes))
        unit = max((units[lane] for lane in limit.lanes if lanes[lane]), default=1)
        most_money = max((costliest[lane.model.name] for lane in limit.lanes), default=0)
        if row.word == BUDGET_ROW:
            tranche = limit.shares.rows[BUDGET_ROW]
            assert isinstance(tranche, GrantedUnits)
            unit = max(1, most_money or tranche.last_units)
        rows[row] = _row_want(row.word, limit, n, unit)
        if limit.controller is not None and not limit.lanes[0].is_declared:
            rows[row] = _undivided(rows[row], row.word, limit)
    return HostDemand(
        {one.lane.lane_id: LaneDemand(n, units[one]) for one, n in lanes.items()}, rows
    )


def _demand(
    table: LaneTable, workers: Collection[WorkerState], unclaimed: Mapping[str, int]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """For each model: the possible requests in flight, and the most tokens and money for one."""
    busy: Counter[str] = Counter()
    openings: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    costliest: Counter[str] = Counter()
    priced: set[object] = set()
    for worker in workers:
        for held in worker.leases.values():
            busy[held.lane.model.name] += 1
        parked = [
            budget.parked[worker.name, request_id].request
            for request_id, budget in worker.parked.items()
        ]
        for request in parked:
            busy[request.model] += 1
            largest[request.model] = max(largest[request.model], request.tokens)
        for waiting in worker.waiting.values():
            model = waiting.model.name
            (openings if waiting.opens else busy)[model] += 1
            largest[model] = max(largest[model], waiting.request.tokens)
            # Cases that begin on the same lanes need the same amount.
            same = waiting.lane_set if waiting.opens else waiting
            if waiting.lane_set.is_priced and same not in priced:
                priced.add(same)
                for lane in waiting.lane_set.lanes:
                    needs = table.needs(lane, waiting.request)
                    costliest[model] = max([costliest[model], *needs.values()])
    # An open episode without a request in flight still has a request to send. A request to a role
    # counts for the role's model.
    n_open = table.progress.n_open()
    demand: Counter[str] = Counter()
    for model in table.models:
        demand[model] = max(busy[model], n_open[model]) + openings[model] + unclaimed.get(model, 0)
    return demand, largest, costliest


def _add_groups(
    table: LaneTable,
    workers: Collection[WorkerState],
    groups: Mapping[GroupState, int],
    of_model: Counter[str],
    of_lane: dict[LaneState, int],
) -> Counter[str]:
    """Add each group's demand to the group's own lanes only; return the demand by model.

    Args:
        table: All lanes.
        workers: All workers.
        groups: The number of cases that could be claimed now, by group.
        of_model: The requests that could be in flight, by model, including those from open and
            waiting cases.
        of_lane: The same numbers by lane. This function changes them.
    """
    demand = of_model.copy()
    waiting = Counter(
        one.group
        for worker in workers
        for one in worker.waiting.values()
        if one.opens and one.group is not None
    )
    for group, n_claimable in groups.items():
        n_own = group.n_open + waiting[group]
        if group.rule is None or not n_own + n_claimable:
            continue
        lanes = table.lanes_of(group.rule)
        models = {lane.model for lane in lanes}
        for model in models:
            demand[model.name] += n_claimable
            for lane in model.lanes:
                # The open and waiting cases of a group use no lanes outside the group.
                of_lane[lane] -= n_own
        for lane in lanes:
            of_lane[lane] += n_own + n_claimable
    for lane, n in of_lane.items():
        of_lane[lane] = max(0, n)
    return demand


def _usable(lane: LaneState, demand: int, bears: Mapping[LaneId, float], now_s: float) -> int:
    if lane.is_removed:
        return 0
    if not lane.is_up and lane.paused_until_s > now_s + PAUSED_S:
        return 0
    most = min(demand, bears.get(lane.lane.lane_id, math.inf))
    if lane.health.on_trial:
        most = min(most, 1)
    for limit in lane.path:
        if limit.controller is not None:
            # The cap grows later if all of it is used.
            most = min(most, limit.controller.cap())
        most = min(most, limit.most_seats)
    return int(most)


def _unit(lane: LaneState, waiting: int) -> int:
    rows = [row for limit in lane.metered for row in limit.shares.rows.values()]
    last = [row.last_units for row in rows if isinstance(row, SharedTokens)]
    return max(1, waiting or max(last, default=0))


def _spread(lanes: Mapping[LaneState, int], demand: Counter[str]) -> dict[LaneState, float]:
    """For each lane, the fraction of its possible requests that it is likely to get.

    If there are more lanes than requests, most lanes get fewer than they could take. For example,
    the last case could use any of twenty keys, but uses only one. Without this fraction, the host
    of that case would take half of every key's rate away from another host. Lanes in which the host
    has no share do not reduce the fractions of its other lanes.
    """
    of_model: dict[str, list[LaneState]] = {}
    for lane in lanes:
        of_model.setdefault(lane.model.name, []).append(lane)
    found: dict[LaneState, float] = {}
    for model, own in of_model.items():
        for is_closed in (True, False):
            these = [lane for lane in own if lane.is_share_closed is is_closed]
            total = sum(lanes[lane] for lane in (own if is_closed else these))
            part = min(1.0, demand[model] / total) if total else 1.0
            found.update(dict.fromkeys(these, part))
    return found


def _on_limit(limit: LimitState, lanes: Mapping[LaneState, int], demand: Counter[str]) -> int:
    """How many requests could be in flight on a limit's lanes, up to each model's demand."""
    by_model: Counter[str] = Counter()
    for lane in limit.lanes:
        by_model[lane.model.name] += lanes[lane]
    return sum(min(n, demand[model]) for model, n in by_model.items())


def _row_want(word: str, limit: LimitState, n: float, unit: int) -> RowDemand:
    if word == SEATS_ROW:
        n = max(n, limit.seats.in_flight)
        return RowDemand(int(min(n, limit.most_seats)))
    kind = LIMIT_KINDS.get(word)
    weight = 1 if kind is not None and kind.counts == "requests" else unit
    per_s = _per_s(limit, n)
    row = limit.shares.rows[word]
    if isinstance(row, GrantedUnits):
        soon = math.ceil(n if per_s == math.inf else max(n, per_s * SOON_S))
        return RowDemand(soon * weight, weight)
    whole = row.row
    if not n or per_s == math.inf:
        return RowDemand(whole.units if n else 0, min(weight, whole.units))
    units = math.ceil(per_s * whole.window_s * weight) + weight
    return RowDemand(min(whole.units, units), min(weight, whole.units))


def _undivided(want: RowDemand, word: str, limit: LimitState) -> RowDemand:
    """Adapt the demand for a row whose limit is estimated, so that only one host uses the row.

    If several hosts estimated the same limit, each of them would probe beyond it, and each would
    get refusals caused by the others. A host without a share of the row requests the whole row or
    nothing. The host that has a share takes more units as they become free.
    """
    row, controller = limit.shares.rows[word], limit.controller
    assert controller is not None
    if isinstance(row, GrantedUnits) or not want.units:
        return want
    if word == SEATS_ROW:
        # Do not request all seats: if a host dies, its seats stay in use for some time.
        soon = max(LOOKED_FOR * controller.cap(), limit.seats.in_flight)
        return RowDemand(min(row.row.units, soon), 1 if row.share else row.row.units)
    return RowDemand(row.row.units, want.unit if row.share else row.row.units)


def _per_s(limit: LimitState, n: float) -> float:
    """The maximum number of requests per second with `n` in flight; infinity if unknown."""
    n_answered = sum(lane.n_served for lane in limit.lanes)
    service_s = sum(lane.service_s for lane in limit.lanes)
    if n_answered < TELLING_ANSWERS or service_s <= 0:
        return math.inf
    return ROOM * n * n_answered / service_s
