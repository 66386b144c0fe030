"""The lanes of a provider, each with the path of limits on which it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import check_name
from pytest_ultrapar.pool.keys import chosen_keys
from pytest_ultrapar.pool.limits import Caps, LimitBook, read_caps
from pytest_ultrapar.pool.model import Key, Lane, LaneId, Model, Provider
from pytest_ultrapar.pool.one_key import Declared, Listing, OneKey, joined_name
from pytest_ultrapar.pool.prompt_types import Multiplier, check_multiplies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import ModelTable, ProviderTable

MAX_LANES = 10_000
"""Instances times keys; a file of 1 MiB could ask for some 10**8."""

SIMULATED_GRACE_S = 0.05
"""The simulated server frees a seat when the connection drops; it needs a moment to see that."""

DEFAULT_GRACE_S = 10.0
"""Until the lane's own answers tell: see `Lane.longest_grace_s`."""

REQUEST_MARGIN_S = 5.0
"""What a busy client may need beyond a request's deadline until its lease is back."""
GRACE_PER_HINT = 2.0
"""Twice the hinted latency: the hint is a typical request, the orphan may be a slow one."""


def keys_of_models(
    place: Place, table: ProviderTable, provider: Provider, n_before: int
) -> tuple[tuple[Key, ...], ...]:
    """The keys that may serve each model of a provider.

    Args:
        place: The provider's place.
        table: Its table, for the models' keys.
        provider: The provider itself.
        n_before: Lanes of the pool's other providers so far.

    Raises:
        ConfigError: A model names an unknown key, or there are too many lanes.
    """
    found = []
    for index, (model, model_table) in enumerate(zip(provider.models, table.model, strict=True)):
        where = place.at("model").item(index)
        keys = chosen_keys(where.at("keys"), model_table.keys, provider.keys)
        n_before += len(model.instances) * len(keys)
        if n_before > MAX_LANES:
            where.refuse(f"brings the pool above {MAX_LANES} lanes (instances times keys)")
        found.append(keys)
    return tuple(found)


def build_lanes(of: Declared, one_key: Mapping[Listing, OneKey], book: LimitBook) -> list[Lane]:
    """The lanes of a provider by model, instance and key, in the order of the file.

    Its limits are added to `book` on the way, outermost first. What the file bounds for each key of
    the provider it bounds once for a key that is listed there twice.

    Args:
        of: The provider.
        one_key: The keys of the whole pool.
        book: Holds the pool's own limit already, if there is one.

    Raises:
        ConfigError: A bound is not allowed.
    """
    place, table, provider = of.place, of.table, of.provider
    mode = provider.rate_mode
    book.add(provider.name, "provider", read_caps(place, table, mode))
    for key in provider.keys:
        one = one_key[Listing(provider.name, key.name)]
        book.add(one.name, "key", one.caps)
    per_key_model = read_caps(place.at("per_key_model"), table.per_key_model, mode)
    families = _families(place, table, bounded=per_key_model != Caps())
    lanes: list[Lane] = []
    models = zip(provider.models, table.model, of.keys, strict=True)
    for index, (model, model_table, keys) in enumerate(models):
        where = place.at("model").item(index)
        per_instance = read_caps(where.at("per_instance"), model_table.per_instance, mode)
        per_lane = read_caps(where.at("per_lane"), model_table.per_lane, mode)
        times = Multiplier(1, book.sources.file_name)
        if model_table.multiply_by_prompt_types:
            check_multiplies(where, (per_key_model, per_instance, per_lane))
            times = Multiplier(book.prompt_types, book.sources.file_name)
        of_key = times.applied(place.at("per_key_model"), per_key_model)
        of_instance = times.applied(where.at("per_instance"), per_instance)
        of_lane = times.applied(where.at("per_lane"), per_lane)
        names_of = _names_of(provider.name, keys, one_key)
        key_model = {
            name: joined_name([f"{provider.name}/{one}/{families[index]}" for one in names])
            for name, names in names_of.items()
        }
        for limit in key_model.values():
            book.add(limit, "key_model", *of_key)
        for instance in model.instances:
            of_this = f"{provider.name}/{instance.name}"
            book.add(of_this, "instance", *of_instance)
            for name, names in names_of.items():
                lane_limit = joined_name([f"{of_this}/{one}" for one in names]) + " lane"
                book.add(lane_limit, "lane", *of_lane)
                one_of = one_key[Listing(provider.name, name)]
                path = book.path(
                    "pool", provider.name, one_of.name, key_model[name], of_this, lane_limit
                )
                lanes.append(_lane(provider, model, (instance.name, name), path, one_of))
    return lanes


def _families(place: Place, table: ProviderTable, *, bounded: bool) -> list[str]:
    """The family of each model of a provider, within which models share `per_key_model`.

    A model that names none is of the family of its own name.

    Raises:
        ConfigError: A name is not allowed, there is nothing to share, or models of a family do not
            agree on what their workers are multiplied by.
    """
    first_of: dict[str, ModelTable] = {}
    families = []
    for index, model in enumerate(table.model):
        where = place.at("model").item(index).at("family")
        family = model.name if model.family is None else check_name(where, model.family)
        if model.family is not None and not bounded:
            where.refuse("shares nothing: the provider has no per_key_model")
        first = first_of.setdefault(family, model)
        if first.multiply_by_prompt_types != model.multiply_by_prompt_types:
            where.refuse(
                f'= "{family}" is shared with "{first.name}", so both must say the same of'
                " multiply_by_prompt_types"
            )
        families.append(family)
    return families


def _names_of(
    provider: str, keys: Sequence[Key], one_key: Mapping[Listing, OneKey]
) -> dict[str, list[str]]:
    """By name of each of these keys of a provider, all names that the same key has among them."""
    names: dict[str, list[str]] = {}
    found = {}
    for key in keys:
        one = one_key[Listing(provider, key.name)]
        found[key.name] = names.setdefault(one.name, [])
        found[key.name].append(key.name)
    return found


def _lane(
    provider: Provider, model: Model, pair: tuple[str, str], path: tuple[str, ...], one: OneKey
) -> Lane:
    instance, key = pair
    grace_s, longest_s = _graces_s(provider, model)
    return Lane(
        LaneId(f"{provider.name}/{instance}/{key}"),
        provider.name,
        model.name,
        instance,
        key,
        path,
        orphan_grace_s=grace_s,
        request_s=provider.timeout_s + REQUEST_MARGIN_S,
        longest_grace_s=longest_s,
        listed_as=one.name if len(one.listings) > 1 else "",
    )


def _graces_s(provider: Provider, model: Model) -> tuple[float, float | None]:
    """`orphan_grace_s` and `longest_grace_s` of a model's lanes."""
    if provider.api == "simulated":
        return SIMULATED_GRACE_S, None
    if model.latency_hint_s is None:
        return DEFAULT_GRACE_S, provider.timeout_s
    return GRACE_PER_HINT * model.latency_hint_s, None
