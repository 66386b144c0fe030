"""The lower bound of a makespan, with the prices of limits that prove it."""

from __future__ import annotations

import math

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS


class Price(msgspec.Struct, frozen=True):
    """What one resource costs.

    Attributes:
        limit: Name of the limit.
        kind: Its kind, by the word.
        price: Of a second of one seat, or of one send.
        share: Of the whole, 0 to 1: price x what the resource offers in a second.
    """

    limit: str
    kind: str
    price: float
    share: float

    @property
    def is_rate(self) -> bool:
        """Whether its price is that of a send."""
        return LIMIT_KINDS[self.kind].is_rate


class Bound(msgspec.Struct, frozen=True):
    """A lower bound of the makespan.

    Attributes:
        seconds: No schedule that keeps the limits is shorter, >= 0.
        prices: The certificate, dearest share first; empty when the longest episode bounds.
        longest_s: The longest episode alone.
    """

    seconds: float
    prices: tuple[Price, ...]
    longest_s: float

    @property
    def binding(self) -> str:
        """What bounds, as in `ideallab/key0 (qps)`; `longest episode` when no limit does."""
        if not self.prices:
            return "longest episode"
        top, n_more = self.prices[0], len(self.alike) - 1
        return f"{top.limit} ({top.kind})" + (f" and {n_more} like it" if n_more else "")

    @property
    def alike(self) -> tuple[Price, ...]:
        """The prices with the dearest share; none where the longest episode bounds."""
        return tuple(one for one in self.prices if math.isclose(one.share, self.prices[0].share))
