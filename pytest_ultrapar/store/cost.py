"""Compute the cost of requests from the prices in the manifest, and count the requests by role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.money import amount_of
from pytest_ultrapar.store.timing import total_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.pool.money import ModelPrice
    from pytest_ultrapar.records import Attempt
    from pytest_ultrapar.store.manifest import Manifest


class RunCost(msgspec.Struct, frozen=True):
    """The cost of all requests of a run, including requests in episodes that the results omit.

    Attributes:
        currency: The currency of all amounts.
        total: The cost of the requests whose cost is known.
        by_model: The known cost of the requests to each model.
        n_unknown: The number of answered requests whose cost is unknown, because there is no price
            or the answer does not report tokens.
        unpriced: The models without a price to which such requests were sent.
        origins: The sources of the prices.
        by_label: The known cost of the requests with each client label, if the run is a gateway.
            Requests without a label are not included.
    """

    currency: str
    total: float
    by_model: dict[str, float]
    n_unknown: int
    unpriced: list[str]
    origins: list[str]
    by_label: dict[str, float] = {}


class Prices:
    """Adds up the cost of a run's requests.

    If a run was finished in a later session, the prices of its last session apply to the whole run.
    They are in the manifest, so they still apply when the tables are made again.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Read the prices.

        Args:
            manifest: The manifest of the run.
        """
        self._currency = manifest.currency
        self._listed = {(one.provider, one.model): one for one in manifest.prices}
        self._model_of = {(one.provider, one.instance): one.model for one in manifest.pool_lanes}
        self._units: dict[str, int] = {}
        self._of_label: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self._unpriced: dict[str, None] = {}

    def of(self, attempt: Attempt) -> int | None:
        """The cost of one request in units (`pool.money`); None if unknown.

        Refused and replayed requests cost nothing; a request without an answer may cost something.
        """
        return 0 if attempt.replayed is not None else self._sent(attempt)

    def _sent(self, attempt: Attempt) -> int | None:
        price = self._price(attempt)
        if price is None:
            return None
        if attempt.tokens_in is None or attempt.tokens_out is None:
            return None if _may_cost(attempt) else 0
        cached, written = attempt.cached_tokens or 0, attempt.cache_write_tokens or 0
        return price.cost(attempt.tokens_in, attempt.tokens_out, cached, written)

    def of_all(self, attempts: Iterable[Attempt]) -> int | None:
        """The cost of an episode's answered requests in units; None if any cost is unknown.

        If the episode was interrupted and resumed, its requests from before the interruption are
        included.
        """
        if not self._listed:
            return None
        whole = 0
        for attempt in attempts:
            units = self._sent(attempt) if attempt.replayed == "resumed" else self.of(attempt)
            if units is None and not (attempt.maybe_billed and self._price(attempt)):
                return None
            whole += units or 0
        return whole

    def add(self, attempts: Iterable[Attempt], label: str = "") -> None:
        """Add the cost of requests, also to the sum of their client label if they have one."""
        for attempt in attempts if self._listed else ():
            if attempt.replayed is not None:
                continue
            model = self._model(attempt)
            units = self.of(attempt)
            if units is not None:
                self._units[model] = self._units.get(model, 0) + units
                if label:
                    self._of_label[label] = self._of_label.get(label, 0) + units
            elif _may_cost(attempt) and not attempt.maybe_billed:
                self._unknown[model] = self._unknown.get(model, 0) + 1
                if self._price(attempt) is None:
                    self._unpriced[model] = None

    def cost(self) -> RunCost | None:
        """The cost added so far; None if no price is known."""
        if not self._listed:
            return None
        return RunCost(
            currency=self._currency,
            total=amount_of(sum(self._units.values())),
            by_model=_amounts(self._units),
            n_unknown=sum(self._unknown.values()),
            unpriced=sorted(self._unpriced),
            origins=list(dict.fromkeys(one.origin for one in self._listed.values())),
            by_label=_amounts(self._of_label),
        )

    def _model(self, attempt: Attempt) -> str:
        # Empty for an instance that only the pool of an earlier session contained.
        return self._model_of.get((attempt.provider, attempt.instance), "")

    def _price(self, attempt: Attempt) -> ModelPrice | None:
        return self._listed.get((attempt.provider, self._model(attempt)))


def _amounts(units: Mapping[str, int]) -> dict[str, float]:
    return {name: amount_of(own) for name, own in sorted(units.items())}


def _may_cost(attempt: Attempt) -> bool:
    return attempt.outcome == "ok" or attempt.maybe_billed


_Sums = tuple[int, int | None, int | None, int | None]
"""The number of requests, prompt tokens, answer tokens, and the cost in units (`pool.money`)."""


class RoleUse(msgspec.Struct, frozen=True):
    """The requests sent to one role, including requests in episodes that the results omit.

    Attributes:
        n_attempts: The number of requests sent.
        tokens_in: Prompt tokens of all answered requests; None if no answer reported a number.
        tokens_out: Tokens of all answers; None if no answer reported a number.
        cost: The known cost, in the manifest's currency; None if no cost is known.
    """

    n_attempts: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None


class RoleUses:
    """Counts the requests of a run for each role."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def add(self, attempts: Iterable[Attempt], prices: Prices) -> None:
        """Count the requests that were sent to roles; ignore those to the cases' own models."""
        for one in attempts:
            if one.role and one.replayed is None:
                n, tokens_in, tokens_out, units = self._sums.get(one.role, (0, None, None, None))
                self._sums[one.role] = (
                    n + 1,
                    total_tokens((tokens_in, one.tokens_in)),
                    total_tokens((tokens_out, one.tokens_out)),
                    total_tokens((units, prices.of(one))),
                )

    def found(self) -> dict[str, RoleUse]:
        """The counted requests of each role, sorted by role; empty if no role was used."""
        return {
            role: RoleUse(n, tokens_in, tokens_out, None if units is None else amount_of(units))
            for role, (n, tokens_in, tokens_out, units) in sorted(self._sums.items())
        }
