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
        self._n: dict[str, int] = {}
        self._tokens: dict[str, tuple[int | None, int | None]] = {}
        self._units: dict[str, int] = {}

    def add(self, attempts: Iterable[Attempt], prices: Prices) -> None:
        """Count requests that were sent; those to cases' own models are passed over."""
        for one in attempts:
            if not one.role:
                continue
            self._n[one.role] = self._n.get(one.role, 0) + 1
            known_in, known_out = self._tokens.get(one.role, (None, None))
            self._tokens[one.role] = (
                total_tokens((known_in, one.tokens_in)),
                total_tokens((known_out, one.tokens_out)),
            )
            if (units := prices.of(one)) is not None:
                self._units[one.role] = self._units.get(one.role, 0) + units

    def found(self) -> dict[str, RoleUse]:
        """What was counted, sorted by role; empty where no role was asked."""
        return {
            role: RoleUse(
                n,
                *self._tokens[role],
                amount_of(self._units[role]) if role in self._units else None,
            )
            for role, n in sorted(self._n.items())
        }
