"""The shipped policies that order models: fixes A, B and C of seed 002.

Each uses only what the public hook gives. No worker gets a home: groups say which lanes a case may
use, and any worker may run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.assignment import Assignment, Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case

_UNLIMITED = 1_000_000
_DEFAULT_LATENCY_S = 1.0


def serial(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Models one after the other, in the pool's order, each on all its lanes (fix A)."""
    return batch(pool, workers, lanes, cases, n_models=1)


def batch(
    pool: Pool,
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    *,
    n_models: int,
) -> Assignment:
    """Batches of `n_models` models in the pool's order, each after the one before (fix B).

    The keys of a provider are dealt out among the models of a batch, so that with enough keys each
    model has its own.

    Args:
        pool: For the order of models.
        workers: Not used.
        lanes: All lanes of the run.
        cases: All cases of the run.
        n_models: Models at once at most, >= 1.
    """
    del workers
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


def exclusive(
    pool: Pool, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """A key serves one model at a time and is handed on to the next one (fix C).

    The cases of each model are dealt to its keys by seats, so that all keys end together; on each
    key models follow one another in the pool's order. A key goes on without waiting for the others.
    """
    del workers
    by_model = _cases_by_model(pool, cases)
    own: dict[tuple[str, str], list[Lane]] = {}
    for lane in lanes:
        own.setdefault((lane.model, lane.key_name), []).append(lane)
    # A model has the key to itself while it is its turn, so seats of other models do not count.
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
    """Each case to the key that has least to do; models with few keys to choose from go first."""
    load_s = {key: 0.0 for _, key in seats}
    shares: dict[tuple[str, str], list[str]] = {}
    for model in sorted(by_model, key=lambda name: len(keys_of[name])):
        for case_id in by_model[model]:
            key = min(keys_of[model], key=load_s.__getitem__)
            load_s[key] += latency_s.get(model, _DEFAULT_LATENCY_S) / seats[model, key]
            shares.setdefault((model, key), []).append(case_id)
    return shares


def _deal_keys(models: Sequence[str], lanes: Sequence[Lane]) -> dict[str, list[str]]:
    """Each key to the model that has fewest; a model left without one shares the least shared."""
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
    found: dict[str, list[str]] = {}
    for case in cases:
        found.setdefault(case.model, []).append(case.case_id)
    return {model: tuple(found[model]) for model in pool.models if model in found}


def _keys_by_model(lanes: Sequence[Lane]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for lane in lanes:
        found.setdefault(lane.model, {})[lane.key_name] = None
    return {model: list(keys) for model, keys in found.items()}


def _latencies_s(pool: Pool) -> dict[str, float]:
    models = (model for provider in pool.providers for model in provider.models)
    return {model.name: model.latency_hint_s or _DEFAULT_LATENCY_S for model in models}
