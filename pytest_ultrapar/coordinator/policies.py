"""Policies decide which lanes each worker prefers (its home), and which models run in parallel.

A policy is a pure function of pool, workers, lanes and cases. The policies in the first part of
this module give each worker a home and do not restrict the order of cases. The other policies put
cases into groups, and a group can wait for other groups. To add a policy, write a function and add
a line to `POLICIES`.
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


# -- homes: a worker prefers its own lanes but may take any case -----------------------------------


def _by_work(name_of: Callable[[Pool, Lane], str], *, capped: bool = False) -> Policy:
    """Make a policy that divides workers among lanes in proportion to the work (cases x latency).

    Args:
        name_of: Returns a name for a lane. Lanes with the same name share their workers.
        capped: Whether lanes get at most as many workers as they have seats.
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
    """Deal lanes to workers in turn, regardless of the work.

    With n workers, each worker gets every n-th lane.
    """
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for position in range(max(len(lanes), len(workers))):
        lane = lanes[position % len(lanes)].lane_id
        home[workers[position % len(workers)]].append(lane)
    return Assignment(home={worker: tuple(dict.fromkeys(own)) for worker, own in home.items()})


class Unit(NamedTuple):
    """Lanes that share their workers.

    Attributes:
        seats: How many requests these lanes may have in flight together; a large number if
            unlimited.
        work_s: The sum of the expected durations of all requests on these lanes, in seconds.
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
    # If several limits are equally tight, use the outermost, because it joins more lanes.
    inner = [limit for limit in bounded if limit.level not in {"pool", "provider"}] or bounded
    if not inner:
        return lane.key_name
    return min(inner, key=lambda limit: limit.workers or 0).name


def _deal(
    units: Sequence[Unit], workers: Sequence[str], *, capped: bool
) -> dict[str, tuple[LaneId, ...]]:
    """Give each unit at least one worker. If there are too few workers, some get several units."""
    if len(workers) < len(units):
        return _share(units, workers)
    count = [1] * len(units)
    for _ in range(len(workers) - len(units)):
        open_units = [
            at for at, unit in enumerate(units) if not capped or count[at] < unit.seats
        ] or list(range(len(units)))
        # The unit with the most work per worker gets the next worker. In a tie, the first unit in
        # the pool file gets it.
        busiest = max(open_units, key=lambda at: (units[at].work_s / count[at], -at))
        count[busiest] += 1
    homes = [unit.lanes for unit, own in zip(units, count, strict=True) for _ in range(own)]
    return dict(zip(workers, homes, strict=True))


def _share(units: Sequence[Unit], workers: Sequence[str]) -> dict[str, tuple[LaneId, ...]]:
    """Assign each unit, most work first, to the worker that has the least work so far."""
    load_s = dict.fromkeys(workers, 0.0)
    home: dict[str, list[LaneId]] = {worker: [] for worker in workers}
    for unit in sorted(units, key=lambda unit: -unit.work_s):
        worker = min(workers, key=load_s.__getitem__)
        home[worker] += unit.lanes
        load_s[worker] += unit.work_s + 1e-9
    return {worker: tuple(lanes) for worker, lanes in home.items()}


# -- groups: cases wait for other cases, or for a key ----------------------------------------------


def exclusive(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Let each key serve one model after another.

    This is fix C in `docs/benchmark/from-the-scripts.md`.

    The cases of each model are divided among its keys in proportion to the keys' seats, so all keys
    finish at about the same time. Each key serves the models in the pool's order and does not
    wait for other keys. Cases are divided in a random order, which depends on their seeds. If they
    were divided in the order of collection, one key could get all the cases of one difficulty.
    """
    by_model = _cases_by_model(pool, sorted(cases, key=lambda case: case.seed))
    own = by_key(((lane.model, lane.key_name), lane) for lane in lanes)
    # While a model has its turn, it is the only model on the key, so ignore the seats of other
    # models.
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
    """Assign each case to the key with the least work so far. Models with fewer keys come first."""
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
    """Divide the models into batches of `n_models`, in the pool's order; run one batch at a time.

    These are fixes A and B in `docs/benchmark/from-the-scripts.md`.

    The keys are divided among the models in a batch. If there are enough keys, each model has its
    own keys.

    Args:
        pool: The pool, for the order of models.
        workers: Not used.
        lanes: All lanes of the run.
        cases: All cases of the run.
        n_models: The number of models in a batch, >= 1.
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
    """Give each key to the model that has the fewest keys so far.

    A model that is left without a key shares the key that has the fewest models.
    """
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
    """Make the only group in mode `serial` or `rotate`. It runs one episode at a time.

    In mode `serial`, each model uses only its first lane. In mode `rotate`, it uses all its lanes
    in turn. That needs no further rule, because the broker always chooses the lane that was used
    least recently.
    """
    first: dict[str, Lane] = {}
    for lane in lanes:
        first.setdefault(lane.model, lane)
    allowed = tuple(lane.lane_id for lane in (lanes if rotates else first.values()))
    return Group("one at a time", tuple(case.case_id for case in cases), allowed, at_once=1)


# -- their names -----------------------------------------------------------------------------------

_BATCH = "batch:N"
POLICIES: dict[str, Policy] = {
    # If there are enough workers, each key and each instance gets its own worker.
    "even": _by_work(_tightest_limit, capped=True),
    "by-key": _by_work(lambda _, lane: lane.key_name),
    "by-model": _by_work(lambda _, lane: lane.model),
    "round-robin": round_robin,
    "exclusive": exclusive,
    _BATCH: batch,
    "serial": batch,
}


def shipped(mode: str) -> Sequence[str]:
    """The plugin's own policies for a mode; mode phase has only policies from suites."""
    return () if mode == PHASE else tuple(POLICIES)


def find_policy(word: str, mode: str) -> Policy:
    """Find the plugin's policy with that name, for a run in which no hook returned an assignment.

    Raises:
        ConfigError: The plugin has no policy with that name for the mode, or the number in
            `batch:N` is not allowed.
    """
    name = next((one for one in shipped(mode) if is_called(word, one)), None)
    if name is None:
        refuse(
            f"--ultrapar-policy {word} (mode {mode}) is offered by a conftest or plugin, but no "
            "pytest_ultrapar_assign returned an assignment for it"
        )
    return partial(batch, n_models=batch_size(word)) if name == _BATCH else POLICIES[name]


def batch_size(word: str) -> int:
    """Return the N of `batch:N`.

    Raises:
        ConfigError: N is not a number of models from 1 to 999999.
    """
    text = word.partition(":")[2]
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= 1):  # noqa: PLR2004 - a million models
        refuse(f"--ultrapar-policy {word!r}: N in batch:N must be a number of models, 1 to 999999")
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
    """Make the assignment of the cases for a mode and a policy.

    Args:
        config: The configuration of pytest, for the pool and the hook.
        workers: Ids of all workers.
        lanes: All lanes of the run.
        cases: All cases that are about to run.
        policy: The name of the policy for that mode.
        mode: The mode, which need not be the mode of this run.

    Raises:
        ConfigError: The hook returned an invalid assignment, or the assignment makes cases wait in
            a way that this run cannot support.
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
    whose = f"policy {policy} in mode {mode}"
    _refuse_order_of_shards(config, assignment, whose)
    waiting = next((case for case in cases if case.stage), None)
    if waiting is not None and any(group.after or group.exclusive for group in assignment.groups):
        refuse(
            f"{waiting.nodeid} waits for the answers of other cases, but {whose} may run those "
            "cases later; "
            "use a policy whose groups do not wait for each other (even, by-key, by-model, "
            "round-robin)"
        )
    return assignment


def _refuse_order_of_shards(config: pytest.Config, assignment: Assignment, whose: str) -> None:
    """In a shard, refuse groups with rules: the shard could apply them only to its own cases."""
    shard = run_config.settings(config)[0].shard
    for group in assignment.groups if shard is not None else ():
        if group.after or group.exclusive or group.at_once or group.start_after_s:
            refuse(
                f"{whose} makes groups of cases that wait for each other (such as {group.name!r}). "
                f"Shard {shard} does not know the cases in other shards; use policy "
                "even, by-key, by-model or round-robin, or leave out --ultrapar-shard"
            )


def checked(assignment: object, *, lanes: Sequence[Lane], cases: Sequence[Case]) -> Assignment:
    """Check the hook's result and return it.

    Raises:
        ConfigError: The result is invalid.
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
    """A message for each unknown lane, group or case, and for each repeated name or case."""
    for worker, home in assignment.home.items():
        for lane in home:
            if lane not in lanes:
                yield (
                    f"the home of {worker} contains the unknown lane {lane!r}; the run's lanes are "
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
                f"group {group.name!r} waits for {strange[0]!r}, which does not exist; the groups "
                f"are {', '.join(times)}"
            )
        if not cases.issuperset(group.cases) or seen.intersection(group.cases):
            yield f"group {group.name!r} has cases that are not in the run or are in another group"
        seen.update(group.cases)
