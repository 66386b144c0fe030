"""Which models of a provider share seats, and how many they have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Lane, Pool


@dataclass(frozen=True, slots=True)
class SeatShare:
    """Models of one provider that share seats with each other and with no other model of it.

    Attributes:
        provider: Its name.
        models: In the order of the file, at least one.
        seats: Requests in flight over all of them together; None is unlimited.
    """

    provider: str
    models: tuple[str, ...]
    seats: int | None


def seat_shares(pool: Pool, lanes: Sequence[Lane]) -> tuple[SeatShare, ...]:
    """The shares of all models, in the order of the pool file.

    The bound of the whole pool is left out, as it holds over the sum of them.

    Args:
        pool: For its limits.
        lanes: All of the run.
    """
    limits = {
        name: replace(limit, workers=None) if limit.level == "pool" else limit
        for name, limit in pool.limits.items()
    }
    pool = replace(pool, limits=limits)
    found: dict[str, dict[str, list[Lane]]] = {}
    for lane in lanes:
        found.setdefault(lane.provider, {}).setdefault(lane.model, []).append(lane)
    shares: list[SeatShare] = []
    for provider, by_model in found.items():
        for models in _joined(pool, by_model):
            own = tuple(lane for model in models for lane in by_model[model])
            shares.append(SeatShare(provider, models, _seats(pool, own)))
    return tuple(shares)


def _joined(pool: Pool, by_model: dict[str, list[Lane]]) -> list[tuple[str, ...]]:
    """Models that share a bound on requests in flight, directly or through others."""
    groups: list[tuple[list[str], set[str]]] = []
    for model, lanes in by_model.items():
        bounds = {name for lane in lanes for name in _bounds(pool, lane)}
        models = [model]
        apart = []
        for others, theirs in groups:
            if bounds.isdisjoint(theirs):
                apart.append((others, theirs))
            else:
                models, bounds = others + models, bounds | theirs
        groups = [*apart, (models, bounds)]
    order = list(by_model)
    named = [tuple(sorted(models, key=order.index)) for models, _ in groups]
    return sorted(named, key=lambda models: order.index(models[0]))


def _seats(pool: Pool, lanes: tuple[Lane, ...]) -> int | None:
    return pool.seats(lanes) if all(_bounds(pool, lane) for lane in lanes) else None


def _bounds(pool: Pool, lane: Lane) -> list[str]:
    limits = (pool.limits[name] for name in lane.limits)
    return [one.name for one in limits if one.workers is not None]
