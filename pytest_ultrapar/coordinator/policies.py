"""Policies: the homes of workers, and the models that run together.

A policy is a pure function of pool, workers, lanes and cases. The policies of the first part give
workers a home and leave the order of cases free. The others put cases into groups
that wait for each other. To add a policy, add a function and a line of `POLICIES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.assignment import Assignment, Group, check_assignment
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.model import Lane, LaneId, Pool
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME, PHASE
from pytest_ultrapar.records import Case, by_key
from pytest_ultrapar.session import run_config
from pytest_ultrapar.session.settings import is_called

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

Policy = Callable[[Pool, Sequence[str], Sequence[Lane], Sequence[Case]], Assignment]
_UNLIMITED = 1_000_000
_DEFAULT_LATENCY_S = 1.0


# -- homes: any worker may take any case, and prefers its own lanes --------------------------------


def _by_work(name_of: Callable[[Pool, Lane], str], *, capped: bool = False) -> Policy:
    """Distribute workers over lanes in proportion to the work (cases x latency) on them.

    Args:
        name_of: Lanes with the same name belong together.
        capped: Whether they get at most as many workers as they have seats.
    """

    def policy(
        pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
    ) -> Assignment:
        units = _units(pool, lanes, cases, name_of)
        return Assignment(home=_deal(units, workers, capped=capped))

    return policy


def round_robin(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Deal lanes to workers in turn, independent of the work: each worker gets every n-th lane."""
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for position in range(max(len(lanes), len(workers))):
        lane = lanes[position % len(lanes)].lane_id
        home[workers[position % len(workers)]].append(lane)
    return Assignment(home={worker: tuple(dict.fromkeys(own)) for worker, own in home.items()})


class Unit(NamedTuple):
    """Lanes that belong together.

    Attributes:
        seats: Requests in flight over all of them; a large number if unlimited.
        work_s: Expected seconds of requests on them.
    """

    name: str
    lanes: tuple[LaneId, ...]
    seats: int
    work_s: float


def _units(
    pool: Pool, lanes: Sequence[Lane], cases: Sequence[Case], name_of: Callable[[Pool, Lane], str]
) -> list[Unit]:
    latency_s = _latencies_s(pool)
    demand_s = {
        model: count * latency_s[model]
        for model, count in Counter(case.model for case in cases).items()
    }
    members = by_key((name_of(pool, lane), lane) for lane in lanes)
    units_of_model = Counter(
        model for own in members.values() for model in {lane.model for lane in own}
    )
    return [
        Unit(
            name=name,
            lanes=tuple(lane.lane_id for lane in own),
            seats=pool.seats(tuple(own)) or _UNLIMITED,
            work_s=sum(
                demand_s.get(model, 0.0) / units_of_model[model]
                for model in dict.fromkeys(lane.model for lane in own)
            ),
        )
        for name, own in members.items()
    ]


def _tightest_limit(pool: Pool, lane: Lane) -> str:
    bounded = [pool.limits[name] for name in lane.limits if pool.limits[name].workers is not None]
    # If limits are equally tight, use the outermost: it joins more lanes.
    inner = [limit for limit in bounded if limit.level not in {"pool", "provider"}] or bounded
    if not inner:
        return lane.key_name
    return min(inner, key=lambda limit: limit.workers or 0).name


def _deal(
    units: Sequence[Unit], workers: Sequence[str], *, capped: bool
) -> dict[str, tuple[LaneId, ...]]:
    """Deal workers to units or, if there are fewer workers, units to workers."""
    if len(workers) < len(units):
        return _share(units, workers)
    count = [1] * len(units)
    for _ in range(len(workers) - len(units)):
        open_units = [
            at for at, unit in enumerate(units) if not capped or count[at] < unit.seats
        ] or list(range(len(units)))
        # The unit with the most work per worker gets the next one; ties keep the order of the file.
        busiest = max(open_units, key=lambda at: (units[at].work_s / count[at], -at))
        count[busiest] += 1
    homes = [unit.lanes for unit, own in zip(units, count, strict=True) for _ in range(own)]
    return dict(zip(workers, homes, strict=True))


def _share(units: Sequence[Unit], workers: Sequence[str]) -> dict[str, tuple[LaneId, ...]]:
    """Deal units to the least loaded worker, those with the most work first."""
    load_s = dict.fromkeys(workers, 0.0)
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for unit in sorted(units, key=lambda unit: -unit.work_s):
        worker = min(workers, key=load_s.__getitem__)
        home[worker] += unit.lanes
        load_s[worker] += unit.work_s + 1e-9
    return {worker: tuple(lanes) for worker, lanes in home.items()}


# -- groups: cases wait for each other, or for a key -----------------------------------------------


def exclusive(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Let a key serve one model after another (fix C).

    The cases of each model are dealt to its keys by seats, so that all keys end together. On each
    key, models follow one another in the pool's order. A key continues without the others. Cases
    are dealt in the random order of their seeds: in the order of collection, one key could get all
    cases of one difficulty.
    """
    by_model = _cases_by_model(pool, sorted(cases, key=lambda case: case.seed))
    own = by_key(((lane.model, lane.key_name), lane) for lane in lanes)
    # A model has the key alone during its turn, so seats of other models do not count.
    seats = {place: pool.seats(tuple(found)) or _UNLIMITED for place, found in own.items()}
    shares = _deal_cases(by_model, _keys_by_model(lanes), seats, _latencies_s(pool))
    return Assignment(
        groups=tuple(
            Group(
                name=f"{model} on {key}",
                cases=tuple(shares[model, key]),
                lanes=tuple(lane.lane_id for lane in own[model, key]),
                exclusive=key,
            )
            for model in by_model
            for key in dict.fromkeys(lane.key_name for lane in lanes)
            if (model, key) in shares
        )
    )


def _deal_cases(
    by_model: Mapping[str, tuple[str, ...]],
    keys_of: Mapping[str, list[str]],
    seats: Mapping[tuple[str, str], int],
    latency_s: Mapping[str, float],
) -> dict[tuple[str, str], list[str]]:
    """Deal each case to the key with the least work; models with few keys come first."""
    load_s = {key: 0.0 for _, key in seats}
    shares: dict[tuple[str, str], list[str]] = {}
    for model in sorted(by_model, key=lambda name: len(keys_of[name])):
        for case_id in by_model[model]:
            key = min(keys_of[model], key=load_s.__getitem__)
            load_s[key] += latency_s[model] / seats[model, key]
            shares.setdefault((model, key), []).append(case_id)
    return shares


def batch(
    pool: Pool,
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    *,
    n_models: int = 1,
) -> Assignment:
    """Run batches of `n_models` models in the pool's order, one after another (fixes A and B).

    The keys of a provider are dealt to the models of a batch, so that with enough keys each model
    has its own.

    Args:
        pool: The pool, for the order of models.
        workers: Not used.
        lanes: All lanes of the run.
        cases: All cases of the run.
        n_models: Models of a batch, >= 1.
    """
    by_model = _cases_by_model(pool, cases)
    models = list(by_model)
    groups: list[Group] = []
    before: tuple[str, ...] = ()
    for start in range(0, len(models), n_models):
        members = models[start : start + n_models]
        keys = _deal_keys(members, lanes)
        for model in members:
            own = tuple(
                lane.lane_id
                for lane in lanes
                if lane.model == model and lane.key_name in keys[model]
            )
            groups.append(Group(model, by_model[model], own, after=before))
        before = tuple(members)
    return Assignment(groups=tuple(groups))


def _deal_keys(models: Sequence[str], lanes: Sequence[Lane]) -> dict[str, list[str]]:
    """Deal each key to the model with the fewest; a model without one shares the least shared."""
    keys_of = {model: keys for model, keys in _keys_by_model(lanes).items() if model in models}
    dealt: dict[str, list[str]] = {model: [] for model in models}
    for key in dict.fromkeys(key for keys in keys_of.values() for key in keys):
        able = [model for model in models if key in keys_of[model]]
        dealt[min(able, key=lambda model: len(dealt[model]))].append(key)
    for model in models:
        if not dealt[model]:
            owned = [key for keys in dealt.values() for key in keys]
            dealt[model].append(min(keys_of[model], key=owned.count))
    return dealt


def _cases_by_model(pool: Pool, cases: Sequence[Case]) -> dict[str, tuple[str, ...]]:
    found = by_key((case.model, case.case_id) for case in cases)
    return {model: tuple(found[model]) for model in pool.models if model in found}


def _keys_by_model(lanes: Sequence[Lane]) -> dict[str, list[str]]:
    found = by_key((lane.model, lane.key_name) for lane in lanes)
    return {model: list(dict.fromkeys(keys)) for model, keys in found.items()}


def _latencies_s(pool: Pool) -> dict[str, float]:
    models = (model for provider in pool.providers for model in provider.models)
    return {model.name: model.latency_hint_s or _DEFAULT_LATENCY_S for model in models}


def one_at_a_time(lanes: Sequence[Lane], cases: Sequence[Case], *, rotates: bool) -> Group:
    """All cases in modes `serial` (a model's first lane) and `rotate` (all lanes in turn).

    With one episode at a time, the broker rotates because it takes the least recently used lane.
    """
    first: dict[str, Lane] = {}
    for lane in lanes:
        first.setdefault(lane.model, lane)
    allowed = tuple(lane.lane_id for lane in (lanes if rotates else first.values()))
    return Group("one at a time", tuple(case.case_id for case in cases), allowed, at_once=1)


# -- their names -----------------------------------------------------------------------------------

_BATCH = "batch:N"
POLICIES: dict[str, Policy] = {
    # Each key and instance gets a worker, if there are enough.
    "even": _by_work(_tightest_limit, capped=True),
    "by-key": _by_work(lambda _, lane: lane.key_name),
    "by-model": _by_work(lambda _, lane: lane.model),
    "round-robin": round_robin,
    "exclusive": exclusive,
    _BATCH: batch,
    "serial": batch,
}


def shipped(mode: str) -> Sequence[str]:
    """The policies that a mode has without a conftest; suites define the policies of mode phase."""
    return () if mode == PHASE else tuple(POLICIES)


def find_policy(word: str, mode: str) -> Policy:
    """The shipped policy of that name, for a run without another assignment.

    Raises:
        ConfigError: No shipped policy has that name, its argument is not allowed, or the policies
            of the mode are not the plugin's.
    """
    name = next((one for one in shipped(mode) if is_called(word, one)), None)
    if name is None:
        refuse(
            f"--ultrapar-policy {word} (mode {mode}) is offered by a conftest or plugin, but no "
            "pytest_ultrapar_assign gave an assignment for it"
        )
    return partial(batch, n_models=batch_size(word)) if name == _BATCH else POLICIES[name]


def batch_size(word: str) -> int:
    """The N of `batch:N`.

    Raises:
        ConfigError: It is not a number of models, >= 1.
    """
    text = word.partition(":")[2]
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= 1):  # noqa: PLR2004 - a million models
        refuse(
            f"--ultrapar-policy {word!r}: batch:N needs the number of models at once, 1 to 999999"
        )
    return int(text)


# -- the assignment of a run -----------------------------------------------------------------------


def make_assignment(
    config: pytest.Config,
    *,
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    policy: str,
    mode: str,
) -> Assignment:
    """The assignment that a mode and a policy make for the cases.

    Args:
        config: pytest's, for the pool and the hook.
        workers: Ids of all workers.
        lanes: All lanes of the run.
        cases: All cases that are about to run.
        policy: The policy in force for that mode.
        mode: Any mode, not only the mode in force.

    Raises:
        ConfigError: The hook returned an invalid assignment.
    """
    if mode in ONE_AT_A_TIME:
        return Assignment(groups=(one_at_a_time(lanes, cases, rotates=mode == "rotate"),))
    given = config.hook.pytest_ultrapar_assign(
        config=config,
        workers=list(workers),
        lanes=lanes,
        cases=cases,
        pool=run_config.settings(config)[1],
        policy=policy,
        mode=mode,
    )
    assignment = checked(given, lanes=lanes, cases=cases)
    whose = f"policy {policy} of mode {mode}"
    _refuse_order_of_shards(config, assignment, whose)
    waiting = next((case for case in cases if case.stage), None)
    if waiting is not None and any(group.after or group.exclusive for group in assignment.groups):
        refuse(
            f"{waiting.nodeid} waits for answers of other cases, which {whose} may run later; "
            "use a policy whose groups do not wait for each other (even, by-key, by-model, "
            "round-robin)"
        )
    return assignment


def _refuse_order_of_shards(config: pytest.Config, assignment: Assignment, whose: str) -> None:
    """Refuse groups of which a shard has only some cases: each shard would follow them alone."""
    shard = run_config.settings(config)[0].shard
    for group in assignment.groups if shard is not None else ():
        if group.after or group.exclusive or group.at_once or group.start_after_s:
            refuse(
                f"{whose} makes groups of cases that wait for each other (such as {group.name!r}). "
                f"Shard {shard} does not know the cases of other shards; use policy "
                "even, by-key, by-model or round-robin, or leave out --ultrapar-shard"
            )


def checked(assignment: object, *, lanes: Sequence[Lane], cases: Sequence[Case]) -> Assignment:
    """The hook's result, if it is valid.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(assignment, Assignment):
        refuse(
            f"pytest_ultrapar_assign must return an Assignment (got {type(assignment).__name__})"
        )
    known = {lane.lane_id for lane in lanes}
    fault = next(_faults(assignment, known, {case.case_id for case in cases}), None)
    if fault is not None:
        refuse(f"pytest_ultrapar_assign: {fault}")
    check_assignment(assignment, known)
    return assignment


def _faults(assignment: Assignment, lanes: set[LaneId], cases: set[str]) -> Iterator[str]:
    """A message for each name that is unknown or used twice."""
    for worker, home in assignment.home.items():
        for lane in home:
            if lane not in lanes:
                yield (
                    f"home of {worker} names lane {lane!r}; the run's lanes are "
                    f"{', '.join(sorted(lanes))}"
                )
    times = Counter(group.name for group in assignment.groups)
    seen: set[str] = set()
    for group in assignment.groups:
        strange = [name for name in group.after if name not in times]
        if not group.name or times[group.name] > 1:
            yield f"group names must be unique and not empty (got {group.name!r})"
        if strange:
            yield (
                f"group {group.name!r} waits for {strange[0]!r}; the groups are {', '.join(times)}"
            )
        if not cases.issuperset(group.cases) or seen.intersection(group.cases):
            yield f"group {group.name!r} has cases that do not run or are in another group"
        seen.update(group.cases)
