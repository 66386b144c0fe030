"""The lower bound on a run's makespan, and the prices of limits that prove it."""

from __future__ import annotations

import math

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS


class Price(msgspec.Struct, frozen=True):
    """The price of one resource in the proof of a lower bound.

    Attributes:
        limit: Name of the limit.
        kind: The kind of the limit, such as `qps`.
        price: The price of one second of a seat, or of one send.
        share: The price times the resource's supply per second, 0 to 1. The shares of all resources
            add up to 1.
    """

    limit: str
    kind: str
    price: float
    share: float

    @property
    def is_rate(self) -> bool:
        """Whether the price is for a send, not for a second of a seat."""
        return LIMIT_KINDS[self.kind].is_rate


class Bound(msgspec.Struct, frozen=True):
    """A lower bound on the makespan.

    Attributes:
        seconds: The bound, >= 0. No schedule within the limits is shorter.
        prices: The prices that prove the bound, largest share first; empty if the longest episode
            is the bound.
        longest_s: The duration of the longest episode.
    """

    seconds: float
    prices: tuple[Price, ...]
    longest_s: float

    @property
    def binding(self) -> str:
        """The binding limit, such as `ideallab/key0 (qps)`; `longest episode` if no limit binds."""
        if not self.prices:
            return "longest episode"
        top, n_more = self.prices[0], len(self.alike) - 1
        return f"{top.limit} ({top.kind})" + (f" and {n_more} like it" if n_more else "")

    @property
    def alike(self) -> tuple[Price, ...]:
        """The prices with the largest share; empty if the longest episode is the bound."""
        return tuple(one for one in self.prices if math.isclose(one.share, self.prices[0].share))
