"""What is served: each provider of a pool with its keys, lanes, limits and personas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit, Simulation
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.faults.timeline import Timeline
from pytest_ultrapar.simulator.limits import Gate, LimitPath
from pytest_ultrapar.simulator.log_line import encode_names
from pytest_ultrapar.simulator.moving import MovingGate
from pytest_ultrapar.simulator.persona import Persona, persona_by_name
from pytest_ultrapar.simulator.station import Station, Waiter

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Lane, Pool, Provider

Tokens = Mapping[tuple[str, str], str]
"""The token of each (provider, key)."""


def default_token(provider: str, key: str) -> str:
    """The token of a simulated key for which nobody chose one; it opens the simulator only."""
    return f"sim-{provider}-{key}"


@dataclass(frozen=True, slots=True)
class ServedLane:
    """One lane as the server sees it.

    Attributes:
        path: The limits that its requests pass.
        names: Its names, ready for the log.
        station: Where its requests wait for their turn, shared by all lanes of an instance; None
            where nobody waits.
    """

    provider: str
    model: str
    instance: str
    key: str
    path: LimitPath
    persona: Persona
    simulation: Simulation
    seed: int
    names: bytes
    station: Station[Waiter] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ServedProvider:
    """One provider as the server sees it.

    Attributes:
        keys: Name of the key by its token.
        lanes: Lane by (key, api_name).
        api_names: In the order of the pool.
        names: Its name alone, ready for the log.
        key_names: Its name and a key's, by key, ready for the log.
        stations: Where requests wait, by the api_name of the instance.
    """

    name: str
    keys: Mapping[bytes, str]
    lanes: Mapping[tuple[str, str], ServedLane]
    api_names: tuple[str, ...]
    names: bytes
    key_names: Mapping[str, bytes]
    stations: Mapping[str, Station[Waiter]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ServedProvider({self.name!r}, api_names={self.api_names!r})"


class Gates:
    """The limits of a server, those that move among them, by the lanes that pass them."""

    def __init__(self, pool: Pool, script: FaultScript, timeline: Timeline) -> None:
        self._named: dict[str, Gate] = {}
        for name, limit in pool.limits.items():
            steps = [one for one in script.capacities if name in one.limits]
            self._named[name] = MovingGate(limit, steps, timeline) if steps else Gate(limit)
        self._added = [
            (one.where, MovingGate(Limit(one.label, "pool"), [one], timeline))
            for one in script.capacities
            if not one.limits
        ]

    def path(self, lane: Lane) -> LimitPath:
        """The limits that a lane's requests pass."""
        added = [gate for where, gate in self._added if where.holds(lane)]
        return LimitPath([*(self._named[name] for name in lane.limits), *added])


def served_providers(
    pool: Pool,
    tokens: Tokens | None = None,
    *,
    script: FaultScript | None = None,
    timeline: Timeline | None = None,
) -> dict[str, ServedProvider]:
    """All providers of the pool by name, whatever API they name.

    Args:
        pool: Who is served, and the limits they are judged by.
        tokens: Tokens of some or all keys; the others have their default token.
        script: Changes of the limits over time.
        timeline: The time of these changes.

    Raises:
        ConfigError: Two keys of a provider share a token, or two of its instances an `api_name`.
    """
    gates = Gates(pool, script or FaultScript(), timeline or Timeline())
    return {
        provider.name: _served(pool, provider, tokens or {}, gates) for provider in pool.providers
    }


def _served(pool: Pool, provider: Provider, tokens: Tokens, gates: Gates) -> ServedProvider:
    keys: dict[bytes, str] = {}
    for key in provider.keys:
        place = (provider.name, key.name)
        token = (tokens.get(place) or default_token(*place)).encode()
        if token in keys:
            msg = (
                f"keys {keys[token]!r} and {key.name!r} of provider {provider.name!r} have the "
                "same token; the server tells keys apart by their tokens"
            )
            raise ConfigError(msg)
        keys[token] = key.name
    api_names = _api_names(provider)
    personas = {model.name: persona_by_name(model.simulation.persona) for model in provider.models}
    simulations = {model.name: model.simulation for model in provider.models}
    stations: dict[str, Station[Waiter]] = {
        instance.name: Station(knee)
        for model in provider.models
        if (knee := model.simulation.latency.knee) is not None
        for instance in model.instances
    }
    lanes = {
        (lane.key, api_names[lane.instance]): ServedLane(
            provider=lane.provider,
            model=lane.model,
            instance=lane.instance,
            key=lane.key,
            path=gates.path(lane),
            persona=personas[lane.model],
            simulation=simulations[lane.model],
            seed=provider.simulation_seed,
            names=encode_names(lane.provider, lane.model, lane.instance, lane.key),
            station=stations.get(lane.instance),
        )
        for lane in pool.lanes
        if lane.provider == provider.name
    }
    return ServedProvider(
        name=provider.name,
        keys=keys,
        lanes=lanes,
        api_names=tuple(api_names.values()),
        names=encode_names(provider.name),
        key_names={key.name: encode_names(provider.name, key=key.name) for key in provider.keys},
        stations={api_names[instance]: station for instance, station in stations.items()},
    )


def _api_names(provider: Provider) -> dict[str, str]:
    api_names: dict[str, str] = {}
    for model in provider.models:
        for instance in model.instances:
            if instance.api_name in api_names.values():
                msg = (
                    f"two instances of provider {provider.name!r} are called "
                    f"{instance.api_name!r} in requests; the simulator serves a provider on one "
                    "base URL and tells its instances apart by that name, so each needs its own"
                )
                raise ConfigError(msg)
            api_names[instance.name] = instance.api_name
    return api_names
