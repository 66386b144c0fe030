"""What is served: each provider of a pool with its keys, lanes, limits and personas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Simulation
from pytest_ultrapar.simulator.limits import Gate, LimitPath
from pytest_ultrapar.simulator.log_line import encode_names
from pytest_ultrapar.simulator.persona import Persona, persona_by_name

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Pool, Provider

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


@dataclass(frozen=True, slots=True, repr=False)
class ServedProvider:
    """One provider as the server sees it.

    Attributes:
        keys: Name of the key by its token.
        lanes: Lane by (key, api_name).
        api_names: In the order of the pool.
        names: Its name alone, ready for the log.
        key_names: Its name and a key's, by key, ready for the log.
    """

    name: str
    keys: Mapping[bytes, str]
    lanes: Mapping[tuple[str, str], ServedLane]
    api_names: tuple[str, ...]
    names: bytes
    key_names: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"ServedProvider({self.name!r}, api_names={self.api_names!r})"


def served_providers(pool: Pool, tokens: Tokens | None = None) -> dict[str, ServedProvider]:
    """All providers of the pool by name, whatever API they name.

    Args:
        pool: Who is served, and the limits they are judged by.
        tokens: Tokens of some or all keys; the others have their default token.

    Raises:
        ConfigError: Two keys of a provider share a token, or two of its instances an `api_name`.
    """
    gates = {name: Gate(limit) for name, limit in pool.limits.items()}
    return {
        provider.name: _served(pool, provider, tokens or {}, gates) for provider in pool.providers
    }


def _served(
    pool: Pool, provider: Provider, tokens: Tokens, gates: Mapping[str, Gate]
) -> ServedProvider:
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
    lanes = {
        (lane.key, api_names[lane.instance]): ServedLane(
            provider=lane.provider,
            model=lane.model,
            instance=lane.instance,
            key=lane.key,
            path=LimitPath(gates[name] for name in lane.limits),
            persona=personas[lane.model],
            simulation=simulations[lane.model],
            seed=provider.simulation_seed,
            names=encode_names(lane.provider, lane.model, lane.instance, lane.key),
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
