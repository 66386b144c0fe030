"""Who answers for each model: what must be the same for two runs' answers to be one set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Model, Pool, Provider


def answered_by(pool: Pool) -> dict[str, str]:
    """A short sentence for each model, in the order of the pool.

    Limits, keys and the number of instances are left out, since no answer depends on them; so are
    addresses, which hold host names.
    """
    found: dict[str, list[str]] = {}
    for provider in pool.providers:
        for model in provider.models:
            found.setdefault(model.name, []).append(_who(provider, model))
    return {name: " and ".join(dict.fromkeys(who)) for name, who in found.items()}


def _who(provider: Provider, model: Model) -> str:
    if provider.api == "simulated":
        acted = model.simulation
        seed = provider.simulation_seed
        return f"simulated {acted.persona} of skill {acted.skill:g}, simulation seed {seed}"
    names = ", ".join(sorted({instance.api_name for instance in model.instances}))
    return f"{names} at {provider.name} ({provider.api})"
