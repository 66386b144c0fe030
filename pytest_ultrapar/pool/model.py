"""The pool as plain data: providers, instances, keys, lanes and their limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NewType

from pytest_ultrapar.apis.registry import SIMULATED
from pytest_ultrapar.pool.max_flow import max_flow
from pytest_ultrapar.pool.money import USD, ModelPrice
from pytest_ultrapar.pool.number_ranges import COUNT, RATE, WORKERS, Bounds
from pytest_ultrapar.pool.settings import RateMode
from pytest_ultrapar.records import by_key

# Imported at run time: msgspec reads the annotations of objects that are sent to the broker.
LaneId = NewType("LaneId", str)
"""`provider/instance/key`, unique in a pool and safe to show."""
SERVED = "*"
"""A placeholder for the API name of a local server's only model, until the run has read that
name."""
Level = Literal["pool", "provider", "key", "key_model", "instance", "lane"]
LatencyKind = Literal["fixed", "log-normal", "knee"]
PersonaName = Literal["echo", "obedient", "repairing", "sloppy"]


@dataclass(frozen=True, slots=True)
class LimitKind:
    """A kind of limit in the pool file: the unit that it counts and its period.

    Attributes:
        word: The name of the field, also used in messages and columns.
        counts: The unit: requests in flight, requests sent, or input and output tokens.
        bounds: The allowed range of the amount.
        window_s: The amount applies to any window of this many seconds; if 0, to every moment.
        per: The period in one word. A limit per `day` may apply to calendar days. It does not space
            sends: the whole amount may be used in the first minute.
    """

    word: str
    counts: Literal["in flight", "requests", "tokens"]
    bounds: Bounds
    window_s: float = 0.0
    per: str = ""

    @property
    def is_rate(self) -> bool:
        """Whether it limits an amount per period, rather than at each moment."""
        return self.window_s > 0

    @property
    def is_daily(self) -> bool:
        """Whether units are counted per day, and therefore over all runs together."""
        return self.per == "day"

    @property
    def is_spaced(self) -> bool:
        """Whether it spaces sends by an interval that depends only on the amount."""
        return self.counts == "requests" and not self.is_daily

    @property
    def within(self) -> str:
        """The text after a measured count, such as `in flight`, `tokens in 60 s` or `in a day`."""
        if not self.is_rate:
            return self.counts
        window = "a day" if self.is_daily else f"{self.window_s:g} s"
        return f"{'tokens ' if self.counts == 'tokens' else ''}in {window}"

    @property
    def rate(self) -> str:
        """The text after a limit's amount, such as `in flight` or `tokens per minute`."""
        if not self.is_rate:
            return self.counts
        return f"{'tokens ' if self.counts == 'tokens' else ''}per {self.per}"


LIMIT_KINDS = {
    kind.word: kind
    for kind in (
        LimitKind("workers", "in flight", WORKERS),
        LimitKind("qps", "requests", RATE, 1.0, "second"),
        LimitKind("rpm", "requests", RATE, 60.0, "minute"),
        LimitKind("tpm", "tokens", COUNT, 60.0, "minute"),
        LimitKind("rpd", "requests", COUNT, 86_400.0, "day"),
        LimitKind("tpd", "tokens", COUNT, 86_400.0, "day"),
    )
}
"""All kinds of limits by their words, which are also the names of fields in `Limit`. All code that
handles limits must use this table."""


class Row(NamedTuple):
    """One bound of a limit: its kind and its amount."""

    kind: LimitKind
    amount: float


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that several lanes share, with an optional bound of each kind.

    Attributes:
        name: The name that users see, unique in the pool: `ideallab/key0`.
        level: The level of the pool file that declares the limit.
        workers: Requests in flight, >= 1; None is unlimited.
        qps: Sends in any window of 1 s, > 0; None is unlimited.
        rpm: Sends in any window of 60 s, > 0; None is unlimited.
        tpm: Input and output tokens in any window of 60 s, >= 1; None is unlimited.
        rpd: Sends per day, >= 1; None is unlimited.
        tpd: Input and output tokens per day, >= 1; None is unlimited.
        day: The time zone of the calendar days for `rpd` and `tpd`; None means any period of 24
            hours.
        budget: Money that a run may spend in all its sessions together, in the pool's currency;
            None is unlimited. `rows` does not include it, because no provider counts money.
    """

    name: str
    level: Level
    workers: int | None = None
    qps: float | None = None
    rpm: float | None = None
    tpm: float | None = None
    rpd: float | None = None
    tpd: float | None = None
    day: str | None = None
    budget: float | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """The bounds that are set, in the order of `LIMIT_KINDS`."""
        found = ((kind, getattr(self, word)) for word, kind in LIMIT_KINDS.items())
        return tuple(Row(kind, amount) for kind, amount in found if amount is not None)


@dataclass(frozen=True, slots=True)
class Key:
    """One API key by name; the secret stays in the environment variable `env`."""

    name: str
    env: str | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """The response time of the simulated provider.

    Attributes:
        kind: `fixed` always takes `median_s`. `log-normal` draws times with this median. `knee`
            draws times in the same way, but requests beyond the knee first wait for their turn.
        median_s: Seconds, >= 0.
        sigma: Standard deviation of the logarithm, >= 0; 0 for `fixed`.
        knee: How many requests an instance processes at the same time, >= 1; only for `knee`.
    """

    kind: LatencyKind = "fixed"
    median_s: float = 0.1
    sigma: float = 0.0
    knee: int | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The behaviour of a simulated model: persona, skill and response time."""

    persona: PersonaName = "echo"
    skill: float = 1.0
    latency: Latency = field(default_factory=Latency)


@dataclass(frozen=True, slots=True)
class Instance:
    """One deployment or server of a model.

    Attributes:
        name: Unique within its provider; part of the lane's id.
        api_name: The model or deployment name that is sent to the API; `SERVED` until it is known.
        base_url: The URL of the API; empty for the simulated provider, whose port is chosen at run
            time.
        metrics_url: The URL of the server's load metrics, if the run may read them.
    """

    name: str
    api_name: str
    base_url: str
    metrics_url: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One model under the name that results use, with its instances at one provider.

    Attributes:
        stream: Whether answers are requested as streams.
        max_tokens: The maximum length of an answer in tokens, unless a suite sets it; None means no
            maximum.
        parameters: For each parameter that is not sent under its own name, the name to send; None
            means that the parameter is not sent.
    """

    name: str
    instances: tuple[Instance, ...]
    latency_hint_s: float | None = None
    price_per_mtok_in: float | None = None
    price_per_mtok_out: float | None = None
    price_per_mtok_cached: float | None = None
    price_per_mtok_cache_write: float | None = None
    simulation: Simulation = field(default_factory=Simulation)
    stream: bool = False
    max_tokens: int | None = None
    parameters: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The price fields that are required to compute the cost, but are missing."""
        return tuple(name for name in PRICE_FIELDS if getattr(self, name) is None)


PRICE_FIELDS = ("price_per_mtok_in", "price_per_mtok_out")
PRICES = (*PRICE_FIELDS, "price_per_mtok_cached", "price_per_mtok_cache_write")


@dataclass(frozen=True, slots=True)
class Network:
    """The way to reach a provider's https servers. Certificates are always verified.

    Attributes:
        ca_file: PEM file with the certificates to trust instead of the default authorities.
        client_cert: PEM file with the client certificate.
        client_key: PEM file with the certificate's key; None if the key is in `client_cert`.
        proxy: URL of an HTTP proxy, without a password.
        proxy_env: Environment variable that holds the URL of a proxy, with or without credentials.
        trust_env: Whether environment variables apply if the fields above are not set.
    """

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    proxy_env: str | None = None
    trust_env: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    """One account or server family of an API.

    Attributes:
        api: The wire format, one of `registry.api_names`.
        timeout_s: The maximum total time for one request, > 0 seconds.
        simulation_seed: Seed for the simulated provider's answers and latencies.
        rate_mode: Whether the run uses the declared limits, or estimates limits up to them.
        patterns: Regular expressions that recognise this provider's refusals, in addition to those
            in `apis/vocabulary.toml`. They are grouped by the meanings that are defined in that
            file.
    """

    name: str
    api: str
    base_url: str
    keys: tuple[Key, ...]
    models: tuple[Model, ...]
    timeout_s: float = 150.0
    api_version: str | None = None
    simulation_seed: int = 0
    rate_mode: RateMode = "fixed"
    network: Network = field(default_factory=Network)
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        """Whether it is the simulated provider, whose server a run starts itself."""
        return self.api == SIMULATED


@dataclass(frozen=True, slots=True)
class Lane:
    """One (instance, key) pair: a route for requests.

    Attributes:
        limits: Names of the limits that apply to it, outermost first.
        orphan_grace_s: How many seconds a seat stays taken after its holder has died, because the
            provider may still be processing the request.
        request_s: The longest time for which a sent request can be in flight, in seconds.
        longest_grace_s: The maximum for `orphan_grace_s`, if that value is a guess that grows with
            the lane's response times; None if it is not a guess.
        listed_as: If the file lists the lane's key more than once, all names of the key, joined;
            otherwise empty.
        variable: The environment variable that holds the lane's key, or None.
    """

    lane_id: LaneId
    provider: str
    model: str
    instance: str
    key: str
    limits: tuple[str, ...]
    orphan_grace_s: float
    request_s: float
    longest_grace_s: float | None = None
    listed_as: str = ""
    variable: str | None = None

    @property
    def key_name(self) -> str:
        """The name of the lane's key as shown, or all its names: `lab/key0 + other/key0`."""
        return self.listed_as or f"{self.provider}/{self.key}"

    @property
    def key_title(self) -> str:
        """The lane's key in messages: its name, and the variable (if any) that a user can fix."""
        return f"key {self.key_name}" + (f" (environment {self.variable})" if self.variable else "")


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """A value in force and its origin (`command line`, `environment MAX_WORKERS`, ...)."""

    name: str
    value: str | int | float | bool | None
    origin: str


@dataclass(frozen=True, slots=True)
class Pool:
    """All providers, models, keys and limits that a run can use.

    Attributes:
        path: The path of the file, as the user wrote it; without a file, the option that names the
            models.
        digest: SHA-256 (hex) of the file's bytes. It can be shown, because the file contains no
            secret.
        lanes: All lanes, in the order of the file.
        limits: All limits by name, in the rate mode of their provider.
        held: The limits that the simulated providers enforce; empty if no simulated provider is in
            adaptive mode.
        undivided: The limits before this shard got its part of them; empty without shards.
        effective: Each configured value in force with its origin, for the manifest and the header.
        repeats: Repetitions of each cell, unless the command line or the environment sets them.
        record: How much of each conversation is recorded, unless the command line or the
            environment sets it.
        currency: The currency of all prices, as a three-letter code.
        prices: The token prices of each model at each provider, if known.
        price_book: The source of prices that the file omits, or None.
        roles: The model of each role, in the order of the file.
        caseless: Names of the models that get no cases of their own, such as models that serve
            only in roles.
    """

    path: str
    digest: str
    providers: tuple[Provider, ...]
    lanes: tuple[Lane, ...]
    limits: Mapping[str, Limit]
    held: Mapping[str, Limit] = field(default_factory=dict)
    undivided: Mapping[str, Limit] = field(default_factory=dict)
    effective: tuple[EffectiveValue, ...] = ()
    repeats: int | None = None
    record: str | None = None
    currency: str = USD
    prices: tuple[ModelPrice, ...] = ()
    price_book: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    caseless: frozenset[str] = frozenset()

    @property
    def models(self) -> tuple[str, ...]:
        """Names of all models without duplicates, in the order of the file."""
        return tuple(dict.fromkeys(model.name for p in self.providers for model in p.models))

    @property
    def has_file(self) -> bool:
        """Whether the pool comes from a file, rather than from names on the command line."""
        return not self.path.startswith("--")

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the models that get cases, without duplicates, in the order of the file."""
        return tuple(name for name in self.models if name not in self.caseless)

    @property
    def rate_mode(self) -> Literal["fixed", "adaptive", "mixed"]:
        """The rate mode of all providers; `mixed` if their modes differ."""
        modes = {provider.rate_mode for provider in self.providers}
        return modes.pop() if len(modes) == 1 else "mixed"

    @property
    def is_simulated(self) -> bool:
        """Whether this pool contains a simulated provider."""
        return any(provider.is_simulated for provider in self.providers)

    @property
    def has_budget(self) -> bool:
        """Whether any limit has a budget."""
        return any(limit.budget is not None for limit in self.limits.values())

    @property
    def urls(self) -> dict[tuple[str, str], str]:
        """The base URL of each instance, by provider name and instance name."""
        return {
            (provider.name, instance.name): instance.base_url
            for provider in self.providers
            for model in provider.models
            for instance in model.instances
        }

    def lanes_of(self, model: str) -> tuple[Lane, ...]:
        """The lanes that serve `model`, in the order of the file."""
        return tuple(lane for lane in self.lanes if lane.model == model)

    def seats(self, lanes: Sequence[Lane]) -> int | None:
        """The exact maximum number of requests in flight on `lanes` together; None is unlimited."""
        caps = {
            name: workers
            for name in {name for lane in lanes for name in lane.limits}
            if (workers := self.limits[name].workers) is not None
        }
        most = self.most(lanes, caps)
        return None if math.isinf(most) else int(most)

    def most(self, lanes: Iterable[Lane], caps: Mapping[str, float]) -> float:
        """The exact maximum that `lanes` can carry together; infinity if a lane has no limit.

        There are two groups of limits: limits of keys, and all others. Limits in the same group are
        nested, but limits in different groups overlap. Therefore the maximum is a maximum flow from
        the keys to the pool.

        Args:
            lanes: Lanes of this pool.
            caps: The capacity of each limit. Limits that are not listed have no maximum.
        """
        keys = {name for name in caps if self.limits[name].level in {"key", "key_model"}}
        ways = []
        for lane in lanes:
            path = [name for name in lane.limits if name in caps]
            if not path:
                return math.inf
            others = [name for name in reversed(path) if name not in keys]
            ways.append(([name for name in path if name in keys], others))
        return max_flow(ways, caps)


ADDRESS = "address"
"""The last word in the name of an effective value that contains the address of a model's
servers."""


def answered_by(pool: Pool) -> dict[str, str]:
    """Describe the source of each model's answers in a short phrase, in the order of the pool.

    The phrase omits limits, keys and the number of instances, because answers do not depend on
    them. It also omits addresses, because they contain host names.
    """
    models = ((model, provider) for provider in pool.providers for model in provider.models)
    found = by_key((model.name, _who(provider, model)) for model, provider in models)
    return {name: " and ".join(dict.fromkeys(who)) for name, who in found.items()}


def answer_settings(effective: Iterable[EffectiveValue], lanes: Iterable[Lane]) -> dict[str, str]:
    """Return the settings that affect answers, for each model in the run.

    These are `max_tokens` and `parameters`. Deadlines are not included, because a request that
    misses its deadline gets no answer.

    Args:
        effective: The values that were in force.
        lanes: The lanes of the run.

    Returns:
        Each value by a readable name, such as `max_tokens of lab/m`.
    """
    values = _values(effective)
    found = {}
    for label in _labels(lanes):
        found[f"max_tokens of {label}"] = values.get(f"{label} max_tokens", "none")
        before = f"{label} parameter "
        renamed = sorted(name for name in values if name.startswith(before))
        found[f"parameter mapping of {label}"] = (
            ", ".join(f"{name.removeprefix(before)}: {values[name]}" for name in renamed)
            or "the suite's own names"
        )
    return found


def addresses(effective: Iterable[EffectiveValue], lanes: Iterable[Lane]) -> dict[str, str]:
    """Return the addresses of a run's models, in the same form as `answer_settings`.

    Models without a recorded address are left out. Earlier versions did not record addresses, and a
    simulated provider has no address.
    """
    values = _values(effective)
    names = {label: f"{label} {ADDRESS}" for label in _labels(lanes)}
    return {f"address of {label}": values[one] for label, one in names.items() if one in values}


def _labels(lanes: Iterable[Lane]) -> list[str]:
    return list(dict.fromkeys(f"{lane.provider}/{lane.model}" for lane in lanes))


def _values(effective: Iterable[EffectiveValue]) -> dict[str, str]:
    """The values by name. If a provider has several tables for a model, their values are joined."""
    found = by_key((one.name, str(one.value)) for one in effective)
    return {name: " and ".join(sorted({*values})) for name, values in found.items()}


def _who(provider: Provider, model: Model) -> str:
    if provider.is_simulated:
        acted = model.simulation
        seed = provider.simulation_seed
        return f"simulated {acted.persona} of skill {acted.skill:g}, simulation seed {seed}"
    names = ", ".join(sorted({instance.api_name for instance in model.instances}))
    return f"{names} at {provider.name} ({provider.api})"
