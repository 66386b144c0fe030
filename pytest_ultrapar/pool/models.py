"""One `[[provider.model]]` table as a checked model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import DEADLINE_S, PRICE, Bounds, check_name
from pytest_ultrapar.pool.instances import build_instances, build_port_instances, ports_in_force
from pytest_ultrapar.pool.metrics_url import with_metrics
from pytest_ultrapar.pool.model import Model, Simulation
from pytest_ultrapar.pool.parameters import build_parameters
from pytest_ultrapar.pool.simulation import build_simulation, mean_s, refuse_simulation

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import ModelTable, ProviderTable
    from pytest_ultrapar.pool.sources import Sources


def build_model(
    provider_place: Place, index: int, provider: ProviderTable, base_url: str, sources: Sources
) -> Model:
    """The model of one table, with its numbers noted in `sources`.

    A simulated model without `latency_hint_s` gets the mean of its latency, which is known exactly.

    Args:
        provider_place: The provider's place.
        index: Which of the provider's models.
        provider: The provider's table.
        base_url: The provider's checked URL, empty for the simulated provider.
        sources: Where variables are read and origins noted.

    Raises:
        ConfigError: Anything about the model is not allowed.
    """
    place, table = provider_place.at("model").item(index), provider.model[index]
    check_name(place.at("name"), table.name)
    label = f"{provider.name}/{table.name}"
    ports = ports_in_force(place, table, sources, label)
    if ports is None:
        instances = build_instances(place, table, base_url)
    else:
        instances = build_port_instances(place, table, base_url, ports)
    instances = with_metrics(place, table, provider_place, provider, instances)
    hint_s = _number(place.at("latency_hint_s"), table.latency_hint_s, DEADLINE_S)
    price_in = _number(place.at("price_per_mtok_in"), table.price_per_mtok_in, PRICE)
    price_out = _number(place.at("price_per_mtok_out"), table.price_per_mtok_out, PRICE)
    sources.note(f"{label} latency_hint_s", hint_s)
    sources.note(f"{label} price_per_mtok_in", price_in)
    sources.note(f"{label} price_per_mtok_out", price_out)
    simulation = Simulation()
    if provider.api == "simulated":
        simulation = build_simulation(place, table, provider_place, provider)
        hint_s = hint_s or mean_s(simulation.latency) or None
        _note_simulation(label, simulation, table, provider, sources)
    else:
        refuse_simulation(place, table, provider.api)
    stream = table.stream if table.stream is not None else provider.stream
    sources.note(f"{label} stream", stream)
    parameters = build_parameters(place, table, provider_place, provider)
    for name, sent_as in parameters.items():
        sources.note(f"{label} parameter {name}", "not sent" if sent_as is None else sent_as)
    return Model(
        name=table.name,
        instances=instances,
        latency_hint_s=hint_s,
        price_per_mtok_in=price_in,
        price_per_mtok_out=price_out,
        simulation=simulation,
        stream=stream or False,
        parameters=parameters,
    )


def _number(place: Place, value: float | None, bounds: Bounds) -> float | None:
    return None if value is None else float(bounds.check(place, value))


def _note_simulation(
    label: str,
    simulation: Simulation,
    table: ModelTable,
    provider: ProviderTable,
    sources: Sources,
) -> None:
    def origin(*given: object) -> str:
        return sources.file_name if any(g is not None for g in given) else "default"

    latency = simulation.latency
    latency_origin = origin(table.latency, provider.latency)
    sources.note(f"{label} persona", simulation.persona, origin(table.persona))
    sources.note(f"{label} skill", simulation.skill, origin(table.skill))
    sources.note(f"{label} latency kind", latency.kind, latency_origin)
    sources.note(f"{label} latency median_s", latency.median_s, latency_origin)
    sources.note(f"{label} latency sigma", latency.sigma, latency_origin)
