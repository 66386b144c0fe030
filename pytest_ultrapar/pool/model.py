"""The pool as plain data: providers, instances, keys, lanes and the limits that bind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, NewType

from pytest_ultrapar.apis.registry import SIMULATED
from pytest_ultrapar.pool.bounds import COUNT, RATE, WORKERS, Bounds
from pytest_ultrapar.pool.flow import max_flow
from pytest_ultrapar.pool.money import USD, ModelPrice
from pytest_ultrapar.pool.settings import RateMode
from pytest_ultrapar.records import by_key

# At run time too, for msgspec reads the annotations of what goes to the broker's process.
LaneId = NewType("LaneId", str)
"""`provider/instance/key`, unique in a pool and safe to show."""
SERVED = "*"
"""As a name at the API: the only model of a server of this machine, whatever it calls it."""
Level = Literal["pool", "provider", "key", "key_model", "instance", "lane"]
LatencyKind = Literal["fixed", "log-normal", "knee"]
PersonaName = Literal["echo", "obedient", "repairing", "sloppy"]


@dataclass(frozen=True, slots=True)
class LimitKind:
    """What one word of the pool file bounds: what is counted, and over which time.

    Attributes:
        word: The field's name, and how messages and columns call it.
        counts: Requests in flight, requests sent, or their tokens, in and out.
        bounds: What the amount may be.
        window_s: The amount holds in any window of so many seconds; 0: at every moment.
        per: That window in a word. What counts per `day` may hold for calendar days instead, and is
            not spaced: it may all go in the first minute.
    """

    word: str
    counts: Literal["in flight", "requests", "tokens"]
    bounds: Bounds
    window_s: float = 0.0
    per: str = ""

    @property
    def is_rate(self) -> bool:
        """Whether it bounds what passes in a span of time, not what there is at a moment."""
        return self.window_s > 0

    @property
    def is_daily(self) -> bool:
        """Whether units are counted over days, and thus over runs."""
        return self.per == "day"

    @property
    def is_spaced(self) -> bool:
        """Whether sends keep a distance that follows from the amount alone."""
        return self.counts == "requests" and not self.is_daily

    @property
    def within(self) -> str:
        """`in flight`, `in 60 s`, `tokens in 60 s`, `in a day`: what a number of it is."""
        if not self.is_rate:
            return self.counts
        window = "a day" if self.is_daily else f"{self.window_s:g} s"
        return f"{'tokens ' if self.counts == 'tokens' else ''}in {window}"

    @property
    def rate(self) -> str:
        """`in flight`, `per minute`, `tokens per minute`: what an amount of it allows."""
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
"""All kinds by their words. A word has its field in `Limit`; whatever reads, checks, holds, plans,
simulates or judges limits goes through this table."""


class Row(NamedTuple):
    """One bound of a limit: so much of this kind."""

    kind: LimitKind
    amount: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds that all lanes which name it share; each is a row, spelled by its kind's word.

    Attributes:
        name: Unique in the pool, shown to users: `ideallab/key0`.
        level: Where in the pool it was declared.
        workers: Requests in flight at once, >= 1; None is unlimited.
        qps: Sends in any window of 1 s, > 0; None is unlimited.
        rpm: Sends in any window of 60 s, > 0; None is unlimited.
        tpm: Tokens, in and out, in any window of 60 s, >= 1; None is unlimited.
        rpd: Sends per day, >= 1; None is unlimited.
        tpd: Tokens, in and out, per day, >= 1; None is unlimited.
        day: The time zone of whose calendar days `rpd` and `tpd` speak; None: any 24 hours.
        budget: Money that a run may spend, in the pool's currency, all its sessions together; None
            is unlimited. Not of `rows`: no provider counts it.
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
        """What it bounds, in the order of `LIMIT_KINDS`."""
        found = ((kind, getattr(self, word)) for word, kind in LIMIT_KINDS.items())
        return tuple(Row(kind, amount) for kind, amount in found if amount is not None)


@dataclass(frozen=True, slots=True)
class Key:
    """One API key by name; the secret stays in the environment variable `env`."""

    name: str
    env: str | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """How long the simulated provider takes for one answer.

    Attributes:
        kind: `fixed` always takes `median_s`; `log-normal` draws with that median; `knee` does so
            as well, and requests beyond the knee wait for their turn first.
        median_s: Seconds, >= 0.
        sigma: Standard deviation of the logarithm, >= 0; 0 for `fixed`.
        knee: Requests that an instance works on at once, >= 1; None but for `knee`.
    """

    kind: LatencyKind = "fixed"
    median_s: float = 0.1
    sigma: float = 0.0
    knee: int | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the simulated provider needs to know of a model: who it acts as, and how fast."""

    persona: PersonaName = "echo"
    skill: float = 1.0
    latency: Latency = field(default_factory=Latency)


@dataclass(frozen=True, slots=True)
class Instance:
    """One deployment or server of a model.

    Attributes:
        name: Unique within its provider; part of the lane's id.
        api_name: The model or deployment name sent to the API; `SERVED` until it is known.
        base_url: Where requests go; empty for the simulated provider, whose port is known at run
            time.
        metrics_url: Where a server tells how busy it is, if that may be asked.
    """

    name: str
    api_name: str
    base_url: str
    metrics_url: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One model as it is named in results, and everything that answers for it at one provider.

    Attributes:
        stream: Whether answers are asked for as streams.
        max_tokens: How long an answer may be where a suite does not say; None: not said either.
        parameters: Under which name a suite's parameter is sent, where not under its own; None: it
            is not sent.
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
        """Fields that are missing, without which nobody knows what it costs."""
        return tuple(name for name in PRICE_FIELDS if getattr(self, name) is None)


PRICE_FIELDS = ("price_per_mtok_in", "price_per_mtok_out")
PRICES = (*PRICE_FIELDS, "price_per_mtok_cached", "price_per_mtok_cache_write")


@dataclass(frozen=True, slots=True)
class Network:
    """How a provider's https servers are reached; certificates are verified whatever it says.

    Attributes:
        ca_file: PEM file of the authorities that are trusted in place of the default ones.
        client_cert: PEM file of the certificate that we show.
        client_key: PEM file of its key; None: it is in `client_cert`.
        proxy: URL of an HTTP proxy without a password.
        proxy_env: Environment variable that holds such a URL, perhaps with user and password.
        trust_env: Whether the environment counts where the fields above say nothing.
    """

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    proxy_env: str | None = None
    trust_env: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    """One API account family.

    Attributes:
        api: Its wire format, one of `registry.api_names`.
        timeout_s: Total deadline of one request, > 0 seconds.
        simulation_seed: Seed of the simulated provider's answers and latencies.
        rate_mode: Whether its limits are as declared, or found below what is declared.
        patterns: By which its refusals are known, where our vocabulary does not know them: regular
            expressions by meaning (those of `apis/vocabulary.toml`).
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
        """Whether a run starts its server itself."""
        return self.api == SIMULATED


@dataclass(frozen=True, slots=True)
class Lane:
    """One (instance, key) pair: where a request can go.

    Attributes:
        limits: Names of the limits on its path, outermost first.
        orphan_grace_s: Seconds for which a seat stays taken after its holder died, since the
            provider may still be at work on the dead holder's request.
        request_s: Seconds after its sending when no request can be in flight any more.
        longest_grace_s: Where `orphan_grace_s` is a guess, the most that it becomes once the lane's
            own answers tell how long requests take; None where it is no guess.
        listed_as: Where the file lists its key more than once, all its names as one; else empty.
        variable: Of the environment, which holds its key; None where none does.
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
        """Its key, for people, under one name for all its listings: `lab/key0 + other/key0`."""
        return self.listed_as or f"{self.provider}/{self.key}"

    @property
    def key_title(self) -> str:
        """What messages call its key: its name, and the variable in which it is to be mended."""
        return f"key {self.key_name}" + (f" (environment {self.variable})" if self.variable else "")


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One number or word in force, and whence (`command line`, `environment MAX_WORKERS`, ...)."""

    name: str
    value: str | int | float | bool | None
    origin: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Everything there is to run on.

    Attributes:
        path: The file it was read from, as given; without one the option that names models.
        digest: SHA-256 (hex) of the file's bytes; holds no secret since the file holds none.
        lanes: All lanes, in the order of the file.
        limits: All limits by name, in the rate mode of their provider.
        held: The limits that its simulated providers hold, where those are not `limits`.
        undivided: What `limits` were before this shard got its part; empty without shards.
        effective: Each configured value in force with its origin, for the manifest and the header.
        repeats: Repetitions of each cell, unless command line or environment say otherwise.
        record: What of conversations is kept, likewise.
        currency: Of all prices, as its three letters.
        prices: What tokens cost, for each model of each provider whose price is known.
        price_book: Where prices are looked up that the file leaves out; None: nowhere.
        roles: The model of each role, in the order of the file.
        caseless: Names of the models that make no cases: they have roles only.
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
        """Names of all models, in the order of the file, each once."""
        return tuple(dict.fromkeys(model.name for p in self.providers for model in p.models))

    @property
    def has_file(self) -> bool:
        """Whether it was read from a file, and not made of names on the command line."""
        return not self.path.startswith("--")

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the models that make cases, in the order of the file, each once."""
        return tuple(name for name in self.models if name not in self.caseless)

    @property
    def rate_mode(self) -> Literal["fixed", "adaptive", "mixed"]:
        """That of all providers, `mixed` where they differ."""
        modes = {provider.rate_mode for provider in self.providers}
        return modes.pop() if len(modes) == 1 else "mixed"

    @property
    def is_simulated(self) -> bool:
        """Whether any answer of this pool comes from the simulated provider."""
        return any(provider.is_simulated for provider in self.providers)

    @property
    def has_budget(self) -> bool:
        """Whether anything bounds what a run may spend."""
        return any(limit.budget is not None for limit in self.limits.values())

    @property
    def urls(self) -> dict[tuple[str, str], str]:
        """The base URL of each instance, by the names of its provider and its own."""
        return {
            (provider.name, instance.name): instance.base_url
            for provider in self.providers
            for model in provider.models
            for instance in model.instances
        }

    def lanes_of(self, model: str) -> tuple[Lane, ...]:
        """The lanes that can answer for `model`, in the order of the file."""
        return tuple(lane for lane in self.lanes if lane.model == model)

    def seats(self, lanes: Sequence[Lane]) -> int | None:
        """The most requests in flight over `lanes` together, exactly; None: nothing bounds them."""
        caps = {
            name: workers
            for name in {name for lane in lanes for name in lane.limits}
            if (workers := self.limits[name].workers) is not None
        }
        most = self.most(lanes, caps)
        return None if math.isinf(most) else int(most)

    def most(self, lanes: Iterable[Lane], caps: Mapping[str, float]) -> float:
        """What `lanes` carry together at most, exactly; infinity where nothing bounds one of them.

        Limits of keys cross all others, and within each of these two kinds they nest: a flow from
        the keys to the pool.

        Args:
            lanes: Of this pool.
            caps: By limit how much it lets pass; the others let everything pass.
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
"""Of a model's servers, among the effective values."""


def answered_by(pool: Pool) -> dict[str, str]:
    """A short sentence for each model, in the order of the pool.

    Limits, keys and the number of instances are left out, since no answer depends on them; so are
    addresses, which hold host names.
    """
    models = ((model, provider) for provider in pool.providers for model in provider.models)
    found = by_key((model.name, _who(provider, model)) for model, provider in models)
    return {name: " and ".join(dict.fromkeys(who)) for name, who in found.items()}


def answer_settings(effective: Iterable[EffectiveValue], lanes: Iterable[Lane]) -> dict[str, str]:
    """What a pool says of the answers of each model that a run can ask: `max_tokens`, `parameters`.

    Deadlines are left out, since what passes one is no answer.

    Args:
        effective: The values that were in force.
        lanes: Of the run.

    Returns:
        Each by its name for people, such as `max_tokens of lab/m`.
    """
    values = _values(effective)
    found = {}
    for label in _labels(lanes):
        found[f"max_tokens of {label}"] = values.get(f"{label} max_tokens", "none")
        before = f"{label} parameter "
        renamed = sorted(name for name in values if name.startswith(before))
        found[f"parameters of {label}"] = (
            ", ".join(f"{name.removeprefix(before)}: {values[name]}" for name in renamed)
            or "as the suite names them"
        )
    return found


def addresses(effective: Iterable[EffectiveValue], lanes: Iterable[Lane]) -> dict[str, str]:
    """Where the models are that a run can ask, in the shape of `answer_settings`.

    Runs of earlier versions did not note it, and simulated providers have none.
    """
    values = _values(effective)
    names = {label: f"{label} {ADDRESS}" for label in _labels(lanes)}
    return {f"address of {label}": values[one] for label, one in names.items() if one in values}


def _labels(lanes: Iterable[Lane]) -> list[str]:
    return list(dict.fromkeys(f"{lane.provider}/{lane.model}" for lane in lanes))


def _values(effective: Iterable[EffectiveValue]) -> dict[str, str]:
    """By name; a model that stands in several tables of a provider has several of one name."""
    found = by_key((one.name, str(one.value)) for one in effective)
    return {name: " and ".join(sorted({*values})) for name, values in found.items()}


def _who(provider: Provider, model: Model) -> str:
    if provider.is_simulated:
        acted = model.simulation
        seed = provider.simulation_seed
        return f"simulated {acted.persona} of skill {acted.skill:g}, simulation seed {seed}"
    names = ", ".join(sorted({instance.api_name for instance in model.instances}))
    return f"{names} at {provider.name} ({provider.api})"
