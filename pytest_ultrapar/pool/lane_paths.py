"""The lanes of a provider, each with the path of limits on which it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.keys import chosen_keys
from pytest_ultrapar.pool.limits import LimitBook, read_caps
from pytest_ultrapar.pool.model import Lane, LaneId, Model, Provider
from pytest_ultrapar.pool.prompt_types import Multiplier, check_multiplies

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import ProviderTable

MAX_LANES = 10_000
"""Instances times keys; a file of 1 MiB could ask for some 10**8."""

SIMULATED_GRACE_S = 0.05
"""The simulated server frees a seat when the connection drops; it needs a moment to see that."""

DEFAULT_GRACE_S = 10.0
REQUEST_MARGIN_S = 5.0
"""What a busy client may need beyond a request's deadline until its lease is back."""
GRACE_PER_HINT = 2.0
"""Twice the hinted latency: the hint is a typical request, the orphan may be a slow one."""


def build_lanes(
    place: Place, table: ProviderTable, provider: Provider, book: LimitBook, n_before: int
) -> tuple[Lane, ...]:
    """The lanes of a provider by model, instance and key, in the order of the file.

    Its limits are added to `book` on the way, outermost first.

    Args:
        place: The provider's place.
        table: Its table, for the bounds and the models' keys.
        provider: The provider itself.
        book: Holds the pool's own limit already, if there is one.
        n_before: Lanes of the pool's other providers so far.

    Raises:
        ConfigError: A bound is not allowed, a model names an unknown key, or there are too many
            lanes.
    """
    mode = provider.rate_mode
    book.add(provider.name, "provider", read_caps(place, table, mode))
    per_key = read_caps(place.at("per_key"), table.per_key, mode)
    for index, key_table in enumerate(table.keys):
        caps = read_caps(place.at("keys").item(index), key_table, mode).over(per_key)
        book.add(f"{provider.name}/{key_table.name}", "key", caps)
    per_key_model = read_caps(place.at("per_key_model"), table.per_key_model, mode)
    lanes: list[Lane] = []
    for index, (model, model_table) in enumerate(zip(provider.models, table.model, strict=True)):
        where = place.at("model").item(index)
        keys = chosen_keys(where.at("keys"), model_table.keys, provider.keys)
        if n_before + len(lanes) + len(model.instances) * len(keys) > MAX_LANES:
            where.refuse(f"brings the pool above {MAX_LANES} lanes (instances times keys)")
        per_instance = read_caps(where.at("per_instance"), model_table.per_instance, mode)
        per_lane = read_caps(where.at("per_lane"), model_table.per_lane, mode)
        times = Multiplier(1, book.sources.file_name)
        if model_table.multiply_by_prompt_types:
            check_multiplies(where, (per_key_model, per_instance, per_lane))
            times = Multiplier(book.prompt_types, book.sources.file_name)
        of_key = times.applied(place.at("per_key_model"), per_key_model)
        of_instance = times.applied(where.at("per_instance"), per_instance)
        of_lane = times.applied(where.at("per_lane"), per_lane)
        for key in keys:
            book.add(f"{provider.name}/{key.name}/{model.name}", "key_model", *of_key)
        for instance in model.instances:
            book.add(f"{provider.name}/{instance.name}", "instance", *of_instance)
            for key in keys:
                lane_id = LaneId(f"{provider.name}/{instance.name}/{key.name}")
                book.add(f"{lane_id} lane", "lane", *of_lane)
                lanes.append(_lane(lane_id, provider, model, (instance.name, key.name), book))
    return tuple(lanes)


def _lane(
    lane_id: LaneId, provider: Provider, model: Model, pair: tuple[str, str], book: LimitBook
) -> Lane:
    instance, key = pair
    path = book.path(
        "pool",
        provider.name,
        f"{provider.name}/{key}",
        f"{provider.name}/{key}/{model.name}",
        f"{provider.name}/{instance}",
        f"{lane_id} lane",
    )
    return Lane(
        lane_id,
        provider.name,
        model.name,
        instance,
        key,
        path,
        orphan_grace_s=_grace_s(provider, model),
        request_s=provider.timeout_s + REQUEST_MARGIN_S,
    )


def _grace_s(provider: Provider, model: Model) -> float:
    if provider.api == "simulated":
        return SIMULATED_GRACE_S
    if model.latency_hint_s is None:
        return DEFAULT_GRACE_S
    return GRACE_PER_HINT * model.latency_hint_s
