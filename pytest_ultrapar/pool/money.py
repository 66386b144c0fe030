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
    per_mtok_cache_write: float | None = None


class ModelPrice(msgspec.Struct, frozen=True):
    """What a million tokens of a model cost at one provider, in the pool's currency.

    Attributes:
        provider: As in the pool.
        model: As in the pool.
        per_mtok_in: Of the prompt.
        per_mtok_out: Of the answer.
        per_mtok_cached: Of those of the prompt that the provider had cached; None: as the others.
        per_mtok_cache_write: Of those of the prompt that it wrote to its cache; None: as the
            others.
        tiers: Prices of longer prompts, by ascending `above`.
        origin: Who says so: `pool.toml`, `genai-prices 0.2.3`.
    """

    provider: str
    model: str
    per_mtok_in: float
    per_mtok_out: float
    per_mtok_cached: float | None = None
    per_mtok_cache_write: float | None = None
    tiers: tuple[Tier, ...] = ()
    origin: str = ""

    def cost(self, tokens_in: int, tokens_out: int, cached: int = 0, written: int = 0) -> int:
        """Units that a request costs.

        Args:
            tokens_in: Of its prompt, those that were cached or written to a cache among them.
            tokens_out: Of its answer.
            cached: How many of the prompt's were cached.
            written: How many of the prompt's were written to a cache.
        """
        of = self._at(tokens_in)
        cached = min(cached, tokens_in)
        written = min(written, tokens_in - cached)
        per_cached = of.per_mtok_in if of.per_mtok_cached is None else of.per_mtok_cached
        per_written = of.per_mtok_in if of.per_mtok_cache_write is None else of.per_mtok_cache_write
        return (
            (tokens_in - cached - written) * _per_token(of.per_mtok_in)
            + cached * _per_token(per_cached)
            + written * _per_token(per_written)
            + tokens_out * _per_token(of.per_mtok_out)
        )

    def most(self, tokens_in: int, tokens_out: int) -> int:
        """Units that a request costs at most, whatever of it a cache had or gets."""
        return max(self.cost(tokens_in, tokens_out, *of) for of in ((0, 0), (0, tokens_in)))

    def _at(self, tokens_in: int) -> ModelPrice | Tier:
        of: ModelPrice | Tier = self
        for tier in self.tiers:
            if tokens_in > tier.above:
                of = tier
        return of
