"""What was asked of each role of the pool, and what that took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.money import amount_of
from pytest_ultrapar.store.timing import total_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import Attempt
    from pytest_ultrapar.store.cost import Prices


_Sums = tuple[int, int | None, int | None, int | None]
"""Requests, tokens in and out, and units (`pool.money`)."""


class RoleUse(msgspec.Struct, frozen=True):
    """Requests sent to one role, those of episodes that do not count among them.

    Attributes:
        n_attempts: How many were sent.
        tokens_in: Sum over their answers; None when no answer said so.
        tokens_out: Likewise.
        cost: Of those whose cost is known, in the manifest's currency; None where it is of none.
    """

    n_attempts: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None


class RoleUses:
    """Counts the requests of a run by their role."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def add(self, attempts: Iterable[Attempt], prices: Prices) -> None:
        """Count requests that were sent; those to cases' own models are passed over."""
        for one in attempts:
            if one.role:
                n, tokens_in, tokens_out, units = self._sums.get(one.role, (0, None, None, None))
                self._sums[one.role] = (
                    n + 1,
                    total_tokens((tokens_in, one.tokens_in)),
                    total_tokens((tokens_out, one.tokens_out)),
                    total_tokens((units, prices.of(one))),
                )

    def found(self) -> dict[str, RoleUse]:
        """What was counted, sorted by role; empty where no role was asked."""
        return {
            role: RoleUse(n, tokens_in, tokens_out, None if units is None else amount_of(units))
            for role, (n, tokens_in, tokens_out, units) in sorted(self._sums.items())
        }
