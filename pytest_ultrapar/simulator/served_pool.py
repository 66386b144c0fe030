"""The providers of a pool as the server serves them, with keys, lanes, limits and personas."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.model import Lane, Limit, Simulation
from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.faults.timeline import Timeline
from pytest_ultrapar.simulator.limits import Gate, LimitPath, MovingGate
from pytest_ultrapar.simulator.log import encode_names
from pytest_ultrapar.simulator.persona import Persona, echo

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import PersonaName, Pool, Provider


_T = TypeVar("_T", bound=Hashable)


class ServerModel(Generic[_T]):
    """The running and waiting requests of an instance, in order of arrival. Does no I/O."""

    __slots__ = ("_knee", "_waiting", "n_running")

    def __init__(self, knee: int) -> None:
        """Make a queue that lets at most `knee` requests run at the same time; `knee` is >= 1."""
        self._knee = knee
        self._waiting: dict[_T, None] = {}
        self.n_running = 0

    @property
    def n_waiting(self) -> int:
        """The number of requests that are waiting to run."""
        return len(self._waiting)

    def arrive(self, request: _T) -> bool:
        """Add a request, and return whether it runs now. If not, a later `leave` returns it."""
        if self.n_running < self._knee:
            self.n_running += 1
            return True
        self._waiting[request] = None
        return False

    def leave(self, request: _T) -> _T | None:
        """End a running or waiting request; return the request that runs instead, or None."""
        if request in self._waiting:
            del self._waiting[request]
            return None
        self.n_running -= 1
        if not self._waiting:
            return None
        following = next(iter(self._waiting))
        del self._waiting[following]
        self.n_running += 1
        return following


Tokens = Mapping[str, str]
"""The token of each key, by `PROVIDER/KEY`."""


@dataclass(frozen=True, slots=True)
class ServedLane:
    """A lane in the server.

    Attributes:
        path: The limits on its requests.
        names: The names that identify it in the log, encoded.
        server_model: The queue for its requests, which all lanes of an instance share; None if
            requests do not queue.
    """

    lane: Lane
    path: LimitPath
    persona: Persona
    simulation: Simulation
    seed: int
    names: bytes
    server_model: ServerModel[Any] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ServedProvider:
    """A provider in the server.

    Attributes:
        keys: The name of each key, by its token.
        lanes: The lanes, by (key, api_name).
        api_names: The API names of its instances, in the order of the pool.
        names: Its name, encoded for the log.
        key_names: For each key, the names of provider and key, encoded for the log.
        server_models: The queues of requests, by the api_name of the instance.
    """

    name: str
    keys: Mapping[bytes, str]
    lanes: Mapping[tuple[str, str], ServedLane]
    api_names: tuple[str, ...]
    names: bytes
    key_names: Mapping[str, bytes]
    server_models: Mapping[str, ServerModel[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ServedProvider({self.name!r}, api_names={self.api_names!r})"


class _Gates:
    """The limits that a server enforces on its lanes. Some limits may change over time."""

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
        """The limits that apply to a lane's requests."""
        added = [gate for where, gate in self._added if where.holds(lane)]
        return LimitPath([*(self._named[name] for name in lane.limits), *added])


def served_providers(
    pool: Pool,
    tokens: Tokens | None = None,
    *,
    script: FaultScript | None = None,
    timeline: Timeline | None = None,
) -> dict[str, ServedProvider]:
    """Return all providers in the pool by name. A provider can have any API.

    Args:
        pool: The providers to serve, and the limits to enforce.
        tokens: The tokens of some or all keys; all others have their default token.
        script: The changes to the limits over time.
        timeline: The clock for these changes.

    Raises:
        ConfigError: Two keys of a provider have the same token, or two of its instances have the
            same `api_name`.
    """
    gates = _Gates(pool, script or FaultScript(), timeline or Timeline())
    return {
        provider.name: _served(pool, provider, tokens or {}, gates) for provider in pool.providers
    }


def _served(pool: Pool, provider: Provider, tokens: Tokens, gates: _Gates) -> ServedProvider:
    keys: dict[bytes, str] = {}
    for key in provider.keys:
        chosen = tokens.get(f"{provider.name}/{key.name}")
        token = (chosen or default_token(provider.name, key.name)).encode()
        if token in keys:
            refuse(
                f"keys {keys[token]!r} and {key.name!r} of provider {provider.name!r} have the "
                "same token; the server identifies keys by their tokens, so each key needs its "
                "own token"
            )
        keys[token] = key.name
    api_names = _api_names(provider)
    personas = {model.name: persona_by_name(model.simulation.persona) for model in provider.models}
    simulations = {model.name: model.simulation for model in provider.models}
    server_models: dict[str, ServerModel[Any]] = {
        instance.name: ServerModel(knee)
        for model in provider.models
        if (knee := model.simulation.latency.knee) is not None
        for instance in model.instances
    }
    lanes = {
        (lane.key, api_names[lane.instance]): ServedLane(
            lane=lane,
            path=gates.path(lane),
            persona=personas[lane.model],
            simulation=simulations[lane.model],
            seed=provider.simulation_seed,
            names=encode_names(lane.provider, lane.model, lane.instance, lane.key),
            server_model=server_models.get(lane.instance),
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
        server_models={
            api_names[instance]: server_model for instance, server_model in server_models.items()
        },
    )


def _api_names(provider: Provider) -> dict[str, str]:
    api_names: dict[str, str] = {}
    for model in provider.models:
        for instance in model.instances:
            if instance.api_name in api_names.values():
                refuse(
                    f"two instances of provider {provider.name!r} have the api_name "
                    f"{instance.api_name!r}; the simulator serves a provider at one base URL and "
                    "identifies its instances by api_name, so their api_names must differ"
                )
            api_names[instance.name] = instance.api_name
    return api_names


METRICS_HEADERS = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


def encode_metrics(provider: ServedProvider) -> bytes:
    """Write, as Prometheus text, how many requests are running and waiting on each instance.

    Only instances with a queue are included.
    """
    lines = []
    for name, says in (
        ("running", "Number of requests in progress."),
        ("waiting", "Number of requests waiting to be processed."),
    ):
        gauge = f"vllm:num_requests_{name}"
        lines += [f"# HELP {gauge} {says}", f"# TYPE {gauge} gauge"]
        for api_name, server_model in provider.server_models.items():
            n = server_model.n_running if name == "running" else server_model.n_waiting
            lines.append(f'{gauge}{{model_name="{api_name}"}} {n}.0')
    return ("\n".join(lines) + "\n").encode()


def persona_by_name(name: PersonaName) -> Persona:
    """Return the persona with this name; only the modules that it needs are imported."""
    if name == "echo":
        return echo
    from pytest_ultrapar.simulator.personas import workflow  # noqa: PLC0415 - rarely needed

    persona: Persona = getattr(workflow, name)  # Each function there has its persona's name.
    return persona
