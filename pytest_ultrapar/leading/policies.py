"""The shipped policies that say which worker calls which lanes home, and how one is found.

Each uses only what the public hook gives; `model_turns` has those that order models.

A unit is the smallest set of lanes that shares its tightest limit: a key whose models share five
seats, or a deployment with fifty of its own. Workers are dealt to units.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.lanes.assignment import Assignment, Group
from pytest_ultrapar.leading.model_turns import batch, exclusive, serial
from pytest_ultrapar.policy_names import PHASE, batch_size, is_called
from pytest_ultrapar.pool.model import Lane, LaneId, Pool
from pytest_ultrapar.records import Case

_DEFAULT_LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class Unit:
    """Lanes that belong together.

    Attributes:
        seats: Requests in flight at once over all of them; a large number when unlimited.
        work_s: Expected seconds of requests that fall on them.
    """

    name: str
    lanes: tuple[LaneId, ...]
    seats: int
    work_s: float


Policy = Callable[[Pool, Sequence[str], Sequence[Lane], Sequence[Case]], Assignment]


def even(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Workers to keys and instances by expected work (cases x latency), capped by seats.

    None is left out.
    """
    units = _units(pool, lanes, cases, _tightest_limit)
    return Assignment(home=_deal(units, workers, capped=True))


def by_key(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Workers to keys, in proportion to the work that falls on each key."""
    units = _units(pool, lanes, cases, lambda _, lane: lane.key_name)
    return Assignment(home=_deal(units, workers, capped=False))


def by_model(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Workers to models, in proportion to the work of each model."""
    units = _units(pool, lanes, cases, lambda _, lane: lane.model)
    return Assignment(home=_deal(units, workers, capped=False))


def round_robin(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Lanes to workers in turn, whatever the work: every worker gets every n-th lane."""
    del pool, cases
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for position in range(max(len(lanes), len(workers))):
        lane = lanes[position % len(lanes)].lane_id
        home[workers[position % len(workers)]].append(lane)
    return Assignment(home={worker: tuple(dict.fromkeys(own)) for worker, own in home.items()})


POLICIES: dict[str, Policy] = {
    "even": even,
    "by-key": by_key,
    "by-model": by_model,
    "round-robin": round_robin,
    "exclusive": exclusive,
    "serial": serial,
}
_BATCH = "batch:N"


def find_policy(word: str, mode: str) -> Policy:
    """The shipped policy of that name, for when nobody else gave an assignment.

    Raises:
        ConfigError: None is shipped under that name, or the mode's rules are not the plugin's.
    """
    if mode != PHASE:
        if is_called(word, _BATCH):
            return partial(batch, n_models=batch_size(word))
        if word in POLICIES:
            return POLICIES[word]
    msg = (
        f"--ultrapar-policy {word} (mode {mode}) is offered by a conftest or plugin, but no "
        "pytest_ultrapar_assign gave an assignment for it"
    )
    raise ConfigError(msg)


def one_at_a_time(
    lanes: Sequence[Lane], cases: Sequence[Case], *, lanes_per_model: int | None
) -> Assignment:
    """Modes `serial` (one lane per model) and `rotate` (all lanes in turn): one episode at a time.

    With one episode at a time the broker's choice of the least recently used lane is the rotation.
    """
    allowed: list[LaneId] = []
    taken: Counter[str] = Counter()
    for lane in lanes:
        if lanes_per_model is None or taken[lane.model] < lanes_per_model:
            taken[lane.model] += 1
            allowed.append(lane.lane_id)
    group = Group("one at a time", tuple(c.case_id for c in cases), tuple(allowed), at_once=1)
    return Assignment(groups=(group,))


def _tightest_limit(pool: Pool, lane: Lane) -> str:
    bounded = [pool.limits[name] for name in lane.limits if pool.limits[name].workers is not None]
    # Of equally tight limits the outermost counts: it binds more lanes together.
    inner = [limit for limit in bounded if limit.level not in {"pool", "provider"}] or bounded
    if not inner:
        return lane.key_name
    return min(inner, key=lambda limit: limit.workers or 0).name


def _units(
    pool: Pool, lanes: Sequence[Lane], cases: Sequence[Case], name_of: Callable[[Pool, Lane], str]
) -> list[Unit]:
    hints = {
        model.name: model.latency_hint_s or _DEFAULT_LATENCY_S
        for provider in pool.providers
        for model in provider.models
    }
    demand_s = {
        model: count * hints.get(model, _DEFAULT_LATENCY_S)
        for model, count in Counter(case.model for case in cases).items()
    }
    members: dict[str, list[Lane]] = {}
    for lane in lanes:
        members.setdefault(name_of(pool, lane), []).append(lane)
    units_of_model = Counter(
        model for own in members.values() for model in {lane.model for lane in own}
    )
    return [
        Unit(
            name=name,
            lanes=tuple(lane.lane_id for lane in own),
            seats=pool.seats(tuple(own)) or 1_000_000,
            work_s=sum(
                demand_s.get(model, 0.0) / units_of_model[model]
                for model in dict.fromkeys(lane.model for lane in own)
            ),
        )
        for name, own in members.items()
    ]


def _deal(
    units: Sequence[Unit], workers: Sequence[str], *, capped: bool
) -> dict[str, tuple[LaneId, ...]]:
    """Deal workers to units, or, where there are fewer workers, units to workers."""
    if len(workers) < len(units):
        return _share(units, workers)
    count = [1] * len(units)
    for _ in range(len(workers) - len(units)):
        open_units = [
            at for at, unit in enumerate(units) if not capped or count[at] < unit.seats
        ] or list(range(len(units)))
        # The unit with the most work per worker gets the next one; ties in the order of the file.
        busiest = max(open_units, key=lambda at: (units[at].work_s / count[at], -at))
        count[busiest] += 1
    home: dict[str, tuple[LaneId, ...]] = {}
    names = iter(workers)
    for unit, own in zip(units, count, strict=True):
        for _ in range(own):
            home[next(names)] = unit.lanes
    return home


def _share(units: Sequence[Unit], workers: Sequence[str]) -> dict[str, tuple[LaneId, ...]]:
    """Longest work first onto the least loaded worker."""
    loads = [(0.0, position) for position in range(len(workers))]
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for unit in sorted(units, key=lambda unit: -unit.work_s):
        load_s, position = heapq.heappop(loads)
        home[workers[position]] += unit.lanes
        heapq.heappush(loads, (load_s + unit.work_s + 1e-9, position))
    return {worker: tuple(lanes) for worker, lanes in home.items()}
