"""Money, exactly: whole trillionths of the pool's currency, so that no sum drifts.

A price of a million tokens with up to six decimals is a whole number of trillionths per token, and
nine million of the currency still fit into 64 bits.
"""

from __future__ import annotations

import math
from functools import cache

import msgspec

UNITS = 10**12
"""In one of the currency."""
USD = "USD"
GENAI_PRICES = "genai-prices"
"""The price book that there is."""


@cache
def _per_token(per_mtok: float) -> int:
    """Units; rounded up, so that nothing costs less than it does."""
    from decimal import Decimal  # noqa: PLC0415 - where money counts

    return math.ceil(Decimal(str(per_mtok)) * (UNITS // 10**6))


def budget_units(amount: float) -> int:
    """An amount of the currency in units, rounded down."""
    from decimal import Decimal  # noqa: PLC0415 - where money counts

    return math.floor(Decimal(str(amount)) * UNITS)


def amount_of(units: int) -> float:
    """Units as an amount of the currency."""
    return units / UNITS


def money(amount: float, currency: str) -> str:
    """An amount for people: `1,234.50 USD`, and of little its first three digits."""
    if amount == 0 or amount >= 1:
        return f"{amount:,.2f} {currency}"
    digits = 2 - math.floor(math.log10(amount))
    return f"{amount:.{digits}f} {currency}"


class Tier(msgspec.Struct, frozen=True):
    """Other prices for requests with more than so many tokens in."""

    above: int
    per_mtok_in: float
    per_mtok_out: float
    per_mtok_cached: float | None = None


class ModelPrice(msgspec.Struct, frozen=True):
    """What a million tokens of a model cost at one provider, in the pool's currency.

    Attributes:
        provider: As in the pool.
        model: As in the pool.
        per_mtok_in: Of the prompt.
        per_mtok_out: Of the answer.
        per_mtok_cached: Of those of the prompt that the provider had cached; None: as the others.
        tiers: Prices of longer prompts, by ascending `above`.
        origin: Who says so: `pool.toml`, `genai-prices 0.2.3`.
    """

    provider: str
    model: str
    per_mtok_in: float
    per_mtok_out: float
    per_mtok_cached: float | None = None
    tiers: tuple[Tier, ...] = ()
    origin: str = ""

    def cost(self, tokens_in: int, tokens_out: int, cached: int = 0) -> int:
        """Units that a request costs.

        Args:
            tokens_in: Of its prompt, those that were cached among them.
            tokens_out: Of its answer.
            cached: How many of the prompt's were cached.
        """
        of: ModelPrice | Tier = self
        for tier in self.tiers:
            if tokens_in > tier.above:
                of = tier
        cached = min(cached, tokens_in)
        per_cached = of.per_mtok_in if of.per_mtok_cached is None else of.per_mtok_cached
        return (
            (tokens_in - cached) * _per_token(of.per_mtok_in)
            + cached * _per_token(per_cached)
            + tokens_out * _per_token(of.per_mtok_out)
        )
