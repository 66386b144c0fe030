"""Pools of one provider, built by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.model import Key, Lane, LaneId, Model, Pool, Provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.pool.settings import RateMode


def lane(
    instance: str,
    key: str,
    *limits: str,
    model: str = "m",
    grace_s: float = 0.0,
    request_s: float = 1e9,
) -> Lane:
    return Lane(
        LaneId(f"p/{instance}/{key}"), "p", model, instance, key, limits, grace_s, request_s
    )


def pool(lanes: Sequence[Lane], *limits: Limit, rate_mode: RateMode = "fixed") -> Pool:
    models = tuple(Model(name, ()) for name in dict.fromkeys(one.model for one in lanes))
    keys = tuple(Key(name) for name in dict.fromkeys(one.key for one in lanes))
    provider = Provider("p", "openai", "http://127.0.0.1", keys, models, rate_mode=rate_mode)
    by_name = {limit.name: limit for limit in limits}
    return Pool("pool.toml", "0" * 64, (provider,), tuple(lanes), by_name)
