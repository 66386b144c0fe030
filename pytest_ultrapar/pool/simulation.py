"""What a provider and its models say about how the simulated provider should act."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import LATENCY_S, SIGMA, SKILL, WORKERS, check_word
from pytest_ultrapar.pool.model import Latency, PersonaName, Simulation
from pytest_ultrapar.pool.schema import LatencyTable, ModelTable, ProviderTable

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place

PERSONAS: tuple[PersonaName, ...] = ("echo", "obedient", "repairing", "sloppy")
_KIND_FIXED = "fixed"
_KIND_LOG_NORMAL = "log-normal"
_KIND_KNEE = "knee"


def build_simulation(
    place: Place, table: ModelTable, provider_place: Place, provider: ProviderTable
) -> Simulation:
    """How a model of the simulated provider acts; the provider's latency holds where it has none.

    Raises:
        ConfigError: An unknown persona or kind of latency, or a number out of its bounds.
    """
    standard = Simulation()
    latency = standard.latency
    if provider.latency is not None:
        latency = build_latency(provider_place.at("latency"), provider.latency)
    if table.latency is not None:
        latency = build_latency(place.at("latency"), table.latency)
    persona, skill = standard.persona, standard.skill
    if table.persona is not None:
        persona = check_word(place.at("persona"), table.persona, PERSONAS)
    if table.skill is not None:
        skill = float(SKILL.check(place.at("skill"), table.skill))
    return Simulation(persona, skill, latency)


def build_latency(place: Place, table: LatencyTable) -> Latency:
    """The latency model of a table.

    Raises:
        ConfigError: An unknown kind, a number out of its bounds, or a `sigma` or `knee` missing or
            too many.
    """
    kind = check_word(place.at("kind"), table.kind, (_KIND_FIXED, _KIND_LOG_NORMAL, _KIND_KNEE))
    median_s = float(LATENCY_S.check(place.at("median_s"), table.median_s))
    where, knee = place.at("sigma"), place.at("knee")
    if kind == _KIND_KNEE:
        if table.knee is None:
            knee.refuse(f'is missing: kind = "{_KIND_KNEE}" needs it')
        sigma = float(SIGMA.check(where, table.sigma or 0))
        return Latency("knee", median_s, sigma, WORKERS.check(knee, table.knee))
    if table.knee is not None:
        knee.refuse(f'is for kind = "{_KIND_KNEE}" only (got kind = "{kind}")')
    if kind == _KIND_FIXED:
        if table.sigma:
            where.refuse(f'is for kind = "{_KIND_LOG_NORMAL}"; a fixed latency does not vary')
        return Latency("fixed", median_s)
    if table.sigma is None:
        where.refuse(f'is missing: kind = "{_KIND_LOG_NORMAL}" needs it')
    return Latency("log-normal", median_s, float(SIGMA.check(where, table.sigma)))


def mean_s(latency: Latency) -> float:
    """Mean of a latency model in seconds, without any waiting for a turn.

    Source: mean of a log-normal distribution, exp(mu + sigma**2 / 2) with mu = log(median).
    """
    return latency.median_s * math.exp(latency.sigma**2 / 2)


def refuse_simulation(place: Place, table: ModelTable | ProviderTable, api: str) -> None:
    """Refuse what only the simulated provider understands, for a provider that is not simulated.

    Raises:
        ConfigError: Such a field is there.
    """
    if isinstance(table, ProviderTable):
        given: dict[str, object] = {
            "latency": table.latency,
            "simulation_seed": table.simulation_seed,
        }
    else:
        given = {"persona": table.persona, "skill": table.skill, "latency": table.latency}
    for field, value in given.items():
        if value is not None:
            place.at(field).refuse(f'is for api = "simulated" only (got api = "{api}")')
