"""Exact money: whole trillionths of the pool's currency, so that sums have no rounding error.

If a price per million tokens has at most six decimals, the price per token is a whole number of
trillionths. Amounts of up to 9,000,000.00 in the currency fit into 64 bits.
"""

from __future__ import annotations

import math
from functools import cache

import msgspec

UNITS = 10**12
"""How many units make up 1.00 of the currency."""
USD = "USD"
GENAI_PRICES = "genai-prices"
"""The only supported price book."""


@cache
def _per_token(per_mtok: float) -> int:
    """The price of a token in units, rounded up so that no cost is too low."""
    from decimal import Decimal  # noqa: PLC0415 - only if prices matter

    return math.ceil(Decimal(str(per_mtok)) * (UNITS // 10**6))


def budget_units(amount: float) -> int:
    """Convert an amount in the currency to units, rounded down."""
    from decimal import Decimal  # noqa: PLC0415 - only if prices matter

    return math.floor(Decimal(str(amount)) * UNITS)


def amount_of(units: int) -> float:
    """Convert units to an amount in the currency."""
    return units / UNITS


def money(amount: float, currency: str) -> str:
    """Format an amount for display: `1,234.50 USD`; below 1, with three significant digits."""
    if amount == 0 or amount >= 1:
        return f"{amount:,.2f} {currency}"
    digits = 2 - math.floor(math.log10(amount))
    return f"{amount:.{digits}f} {currency}"


class Tier(msgspec.Struct, frozen=True):
    """The prices for requests with more than `above` prompt tokens."""

    above: int
    per_mtok_in: float
    per_mtok_out: float
    per_mtok_cached: float | None = None
    per_mtok_cache_write: float | None = None


class ModelPrice(msgspec.Struct, frozen=True):
    """The prices of a model at one provider, per million tokens, in the pool's currency.

    Attributes:
        provider: The provider's name in the pool.
        model: The model's name in the pool.
        per_mtok_in: Price of prompt tokens.
        per_mtok_out: Price of answer tokens.
        per_mtok_cached: Price of prompt tokens that the provider read from its cache; None means
            the same as `per_mtok_in`.
        per_mtok_cache_write: Price of prompt tokens that the provider wrote to its cache; None
            means the same as `per_mtok_in`.
        tiers: Prices for longer prompts, by ascending `above`.
        origin: The source of the prices, such as `pool.toml` or `genai-prices 0.2.3`.
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
        """Return the cost of a request in units.

        Args:
            tokens_in: Prompt tokens, including those read from or written to a cache.
            tokens_out: Answer tokens.
            cached: Prompt tokens read from a cache.
            written: Prompt tokens written to a cache.
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
        """Return the maximum cost of a request in units, however it uses the cache."""
        return max(self.cost(tokens_in, tokens_out, *of) for of in ((0, 0), (0, tokens_in)))

    def _at(self, tokens_in: int) -> ModelPrice | Tier:
        of: ModelPrice | Tier = self
        for tier in self.tiers:
            if tokens_in > tier.above:
                of = tier
        return of
