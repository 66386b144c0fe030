"""What a run is going to cost at the pool's prices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.plan.amounts import Amount, amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.plan.earlier import EarlierEpisode
    from pytest_ultrapar.plan.expectations import EpisodeLike, Expected
    from pytest_ultrapar.plan.forecast import LaneLoad
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool

_MTOK = 1_000_000
_FIELDS = ("price_per_mtok_in", "price_per_mtok_out")


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a million tokens of a model cost."""

    per_mtok_in: float
    per_mtok_out: float


def prices(
    pool: Pool, lanes: Sequence[Lane], loads: Mapping[LaneId, LaneLoad]
) -> dict[str, TokenPrice]:
    """The price of each model that has one; models without any are missing.

    Where several providers answer for a model, each counts with its share of the requests, and all
    of them need a price.
    """
    listed = {
        (provider.name, model.name): (model.price_per_mtok_in, model.price_per_mtok_out)
        for provider in pool.providers
        for model in provider.models
    }
    requests: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for lane in lanes:
        if lane.lane_id in loads:
            requests[lane.model][lane.provider] += loads[lane.lane_id].requests
    found = {}
    for model, by_provider in requests.items():
        whole = sum(by_provider.values())
        per_in = per_out = 0.0
        for provider, n in by_provider.items():
            own_in, own_out = listed[provider, model]
            if own_in is None or own_out is None:
                break
            per_in += own_in * n / whole
            per_out += own_out * n / whole
        else:
            found[model] = TokenPrice(per_in, per_out)
    return found


def missing_prices(pool: Pool, models: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By model the fields that some provider of it leaves out, in the order of the models.

    Empty where no model has any of them: the pool then says nothing of prices.
    """
    said, missing = False, {}
    for model in models:
        own = [one for provider in pool.providers for one in provider.models if one.name == model]
        silent = tuple(
            field for field in _FIELDS if any(getattr(one, field) is None for one in own)
        )
        said = said or any(getattr(one, field) is not None for one in own for field in _FIELDS)
        if silent:
            missing[model] = silent
    return missing if said else {}


def cost(
    expected: Sequence[Expected],
    earlier: Sequence[EarlierEpisode],
    price_of: Mapping[str, TokenPrice],
) -> Amount | None:
    """The cost of all episodes whose model has a price; None where their tokens are not known."""

    def of(one: EpisodeLike) -> float | None:
        if one.tokens_in is None or one.tokens_out is None:
            return None
        price = price_of[one.model]
        whole = one.tokens_in * price.per_mtok_in + one.tokens_out * price.per_mtok_out
        return whole / _MTOK

    priced = [one for one in expected if one.model in price_of]
    return amount(priced, [one for one in earlier if one.model in price_of], of)
