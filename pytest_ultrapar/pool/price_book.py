"""Prices from a price book, for models whose price is not in the pool file.

The coordinator looks up the prices once. The book is a package that contains its data, so nothing
is downloaded, and the version of the package identifies the prices.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.pool.model import PRICES
from pytest_ultrapar.pool.money import GENAI_PRICES, ModelPrice, Tier

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Model, Pool, Provider


def with_book_prices(pool: Pool) -> Pool:
    """Return the pool, with prices from its price book for models without a price in the file.

    Raises:
        ConfigError: The book is not installed.
    """
    if pool.price_book is None:
        return pool
    try:
        from genai_prices import data_snapshot  # noqa: PLC0415 - 0.3 s, and part of an extra
    except ImportError as error:
        raise ConfigError(
            f'{pool.path}: pool.prices = "{pool.price_book}" needs the package {GENAI_PRICES}: pip '
            "install 'pytest-ultrapar[prices]'"
        ) from error
    book, origin = data_snapshot.get_snapshot(), f"{GENAI_PRICES} {metadata.version(GENAI_PRICES)}"
    known = {(one.provider, one.model): one for one in pool.prices}
    found = []
    for provider in pool.providers:
        for model in provider.models:
            has_own = any(getattr(model, field) is not None for field in PRICES)
            own = known.get((provider.name, model.name))
            found.append(own if has_own else _price(book, provider, model, origin))
    return replace(pool, prices=tuple(one for one in found if one is not None))


def _price(book: Any, provider: Provider, model: Model, origin: str) -> ModelPrice | None:  # noqa: ANN401 - a package that may not be installed
    """The prices of a model in the book; None if it is not listed or its instances differ in price.

    A server is identified by its address alone: another company may offer the same API at other
    prices.
    """
    found: set[tuple[Tier, ...]] = set()
    for instance in model.instances:
        if not instance.base_url:
            return None
        try:
            _, listed = book.find_provider_model(instance.api_name, None, None, instance.base_url)
        except LookupError:
            return None
        found.add(_tiers(listed.get_prices(datetime.now(UTC))))
    if len(found) != 1 or not (tiers := found.pop()):
        return None
    per_mtok = msgspec.structs.asdict(tiers[0])
    del per_mtok["above"]
    return ModelPrice(provider.name, model.name, **per_mtok, tiers=tiers[1:], origin=origin)


def _tiers(price: Any) -> tuple[Tier, ...]:  # noqa: ANN401 - as above
    """The prices by prompt length, from 0 tokens; empty if the input or output price is missing."""
    parts = [
        getattr(price, name, None)
        for name in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    ]
    if parts[0] is None or parts[1] is None:
        return ()
    starts = {0} | {tier.start for part in parts for tier in getattr(part, "tiers", ())}
    return tuple(Tier(start, *(_at(part, start) for part in parts)) for start in sorted(starts))


def _at(part: Any, start: int) -> Any:  # noqa: ANN401 - as above
    """The price for prompts of more than `start` tokens; None if there is no price.

    The book's value is either a number, or a base price with tiers.
    """
    if part is None:
        return None
    price = getattr(part, "base", part)
    for tier in getattr(part, "tiers", ()):
        if tier.start <= start:
            price = tier.price
    return float(price)


def check_budgets(pool: Pool) -> None:
    """Check that each model to which a budget applies has a known price.

    Raises:
        ConfigError: A price is unknown; the message names the model and the fields to fill in.
    """
    priced = {(one.provider, one.model) for one in pool.prices}
    models = {(of.name, model.name): model for of in pool.providers for model in of.models}
    for lane in pool.lanes:
        place = lane.provider, lane.model
        limits = [name for name in lane.limits if pool.limits[name].budget is not None]
        if limits and place not in priced:
            fields = " and ".join(models[place].unpriced)
            refuse(
                f"{pool.path}: the budget of {limits[0]} requires a price for model "
                f'"{lane.model}" at provider "{lane.provider}": write {fields} in its '
                f"[[provider.model]], or, if {GENAI_PRICES} knows the API, "
                f'write prices = "{GENAI_PRICES}" in [pool]'
            )
