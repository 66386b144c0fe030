"""What the pool says of a request of each model, for plans and for the header of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.plan.busy_seats import Service
from pytest_ultrapar.plan.expectations import Hint
from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.pool.simulation import mean_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.plan.expectations import Expected
    from pytest_ultrapar.pool.model import Pool

ASSUMED_S = 1.0
"""A request where the pool says nothing of its model's latency."""


def pool_hints(pool: Pool) -> dict[str, Hint]:
    """What the pool says of a request of each model; of several providers the slowest."""
    found: dict[str, Hint] = {}
    for provider in pool.providers:
        for model in provider.models:
            if provider.api == "simulated":
                own = Hint(1.0, model.simulation.latency)
            else:
                own = Hint(
                    1.0,
                    Latency("fixed", model.latency_hint_s or ASSUMED_S),
                    is_assumed=model.latency_hint_s is None,
                )
            known = found.get(model.name)
            if known is None or known.latency.median_s < own.latency.median_s:
                found[model.name] = own
    return found


def known_services(hints: Mapping[str, Hint], expected: Iterable[Expected]) -> dict[str, Service]:
    """How long a request of each model takes: as expected, else as the pool says."""
    sums: dict[str, list[float]] = {}
    seen: set[str] = set()
    for one in expected:
        sums.setdefault(one.model, []).extend(one.services_s)
        if one.basis != "hint":
            seen.add(one.model)
    return {
        model: Service(
            math.fsum(sums[model]) / len(sums[model]) if model in seen else mean_s(hint.latency),
            is_assumed=hint.is_assumed and model not in seen,
        )
        for model, hint in hints.items()
    }
