"""Check the tables of a provider and its models."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.registry import MODULES, SIMULATED, api_named, api_names
from pytest_ultrapar.apis.vocabulary import vocabulary
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import (
    Location,
    check_api_name,
    check_different,
    check_name,
    check_word,
    one_of,
    shown,
)
from pytest_ultrapar.pool.file import (
    InstanceTable,
    LatencyTable,
    ModelTable,
    ProviderTable,
    check_variable,
)
from pytest_ultrapar.pool.keys import build_keys
from pytest_ultrapar.pool.model import (
    ADDRESS,
    PRICES,
    SERVED,
    Instance,
    Key,
    Latency,
    Model,
    Provider,
    Simulation,
)
from pytest_ultrapar.pool.network import (
    address_of,
    build_network,
    check_base_url,
    host_of,
    with_port,
)
from pytest_ultrapar.pool.secret import refuse_of_others
from pytest_ultrapar.pool.setting_values import check_ports, parse_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.setting_values import Sources


_OURS = ("model", "messages", "stream")
_SENT_BY_US = (*_OURS, "stream_options")


def build_parameters(
    location: Location, table: ModelTable, provider_place: Location, provider: ProviderTable
) -> dict[str, str | None]:
    """Return the name under which each parameter is sent; None means that it is not sent.

    The model's entry for a parameter overrides the provider's. If the entry is `true`, the
    parameter is sent under its own name and is not in the result.

    Raises:
        ConfigError: The client sets the parameter itself, or a name is not valid.
    """
    given: dict[str, str | bool] = {}
    for place, own in ((provider_place, provider.parameters), (location, table.parameters)):
        for name, word in (own or {}).items():
            where = place.at("parameters").at(name)
            is_renamed = name in _SENT_BY_US and isinstance(word, str)
            if name in _OURS or is_renamed or word in _SENT_BY_US:
                where.refuse(f"must not affect {one_of(_SENT_BY_US)}: the client sets these itself")
            given[name] = check_name(where, word) if isinstance(word, str) else word
    return {
        name: None if word is False else str(word)
        for name, word in given.items()
        if word is not True
    }


def build_patterns(
    location: Location, patterns: Mapping[str, Sequence[str]], sources: Sources, label: str
) -> dict[str, tuple[str, ...]]:
    """Check the patterns that recognise a provider's refusals, and record them in `sources`.

    Returns:
        The patterns by meaning.

    Raises:
        ConfigError: A meaning is unknown, or a pattern is not a regular expression or matches the
            empty string.
    """
    for meaning, texts in patterns.items():
        check_word(location, meaning, tuple(vocabulary()["meanings"]))
        for i, text in enumerate(texts):
            where = location.at(meaning).item(i)
            try:
                with warnings.catch_warnings(action="error"):
                    fits_everything = re.search(text, "") is not None
            except (re.error, OverflowError, RecursionError, FutureWarning) as error:
                where.refuse(f"must be a regular expression ({error}; got {shown(text)})")
            if fits_everything:
                where.refuse(f"must not match the empty string (got {shown(text)})")
        sources.note(f"{label} pattern {meaning}", " or ".join(texts) or None)
    return {meaning: tuple(texts) for meaning, texts in patterns.items()}


def build_simulation(
    location: Location, table: ModelTable, provider_place: Location, provider: ProviderTable
) -> Simulation:
    """Return the simulated behaviour of a model. The provider's latency is the default.

    Raises:
        ConfigError: A number is missing from a latency, or belongs to a latency of another kind.
    """
    standard = Simulation()
    latency = standard.latency
    for place, said in ((provider_place, provider.latency), (location, table.latency)):
        if said is not None:
            latency = build_latency(place.at("latency"), said)
    skill = standard.skill if table.skill is None else table.skill
    return Simulation(table.persona or standard.persona, skill, latency)


def build_latency(location: Location, table: LatencyTable) -> Latency:
    """Return the latency model that a table describes.

    Raises:
        ConfigError: `sigma` or `knee` is missing, or not allowed for this kind.
    """
    kind = table.kind
    for field, needing, kinds in (
        ("sigma", "log-normal", ("log-normal", "knee")),
        ("knee", "knee", ("knee",)),
    ):
        given = getattr(table, field)
        if given is None and kind == needing:
            location.at(field).refuse(f'is missing: kind = "{needing}" requires it')
        if given and kind not in kinds:
            location.at(field).refuse(f'requires kind = {one_of(kinds)} (got kind = "{kind}")')
    return Latency(kind, table.median_s, table.sigma or 0.0, table.knee)


def mean_s(latency: Latency) -> float:
    """The mean of a latency model in seconds, without the time that requests wait for their turn.

    Source: mean of a log-normal distribution, exp(mu + sigma**2 / 2) with mu = log(median).
    """
    return latency.median_s * math.exp(latency.sigma**2 / 2)


def _metrics_url(location: Location, url: str | None, api: str) -> str | None:
    if url is None:
        return None
    where = location.at("metrics_url")
    if api == SIMULATED:
        where.refuse('does not apply to api = "simulated"; leave it out')
    return check_base_url(where, url)


def build_instances(
    location: Location,
    table: ModelTable,
    provider: ProviderTable,
    server: Instance,
    ports: tuple[int, ...] | None,
) -> tuple[Instance, ...]:
    """Return the instances of a model: those that it lists, or one for each of its ports.

    The instance on a port is named `<model>:<port>`. A model with neither a list nor ports has one
    instance.

    Args:
        location: The model's place in the file.
        table: The model's table.
        provider: The provider's table.
        server: The provider's URL and metrics URL. An instance with its own `base_url` does not use
            this metrics URL. The instance on a port uses both URLs, but with this port.
        ports: The model's ports; None if it does not set any.

    Raises:
        ConfigError: A name or URL is not allowed, or the list of instances is empty. Or ports are
            combined with such a list or with a provider that has no URL.
    """
    api_name = table.name
    if table.api_name is not None:
        api_name = check_api_name(location.at("api_name"), table.api_name)
    where = location.at("instances")
    if ports is not None:
        if table.instances is not None:
            where.refuse("cannot be combined with ports or ports_env; set only one of them")
        if not server.base_url:
            field = "ports" if table.ports is not None else "ports_env"
            location.at(field).refuse("requires a base_url; a simulated provider does not have one")
        return tuple(_at_port(server, table.name, api_name, port) for port in ports)
    if table.instances is None:
        return (replace(server, name=table.name, api_name=api_name),)
    if table.api_name is not None:
        location.at("api_name").refuse(
            "cannot be combined with instances; set it in each: { name = ..., api_name = ... }"
        )
    if not table.instances:
        where.refuse("must name at least one instance (got none)")
    return tuple(
        _instance(where.item(i), entry, provider.api, server)
        for i, entry in enumerate(table.instances)
    )


def _at_port(server: Instance, model: str, api_name: str, port: int) -> Instance:
    metrics_url = server.metrics_url and with_port(server.metrics_url, port)
    return Instance(f"{model}:{port}", api_name, with_port(server.base_url, port), metrics_url)


def _instance(
    location: Location, entry: str | InstanceTable, api: str, server: Instance
) -> Instance:
    if isinstance(entry, str):
        return replace(server, name=check_name(location, entry), api_name=entry)
    name = check_name(location.at("name"), entry.name)
    api_name = name if entry.api_name is None else entry.api_name
    base_url, metrics_url = server.base_url, server.metrics_url
    if entry.base_url is not None:
        where = location.at("base_url")
        if api == SIMULATED:
            where.refuse("is not used by a simulated provider; leave it out")
        base_url, metrics_url = check_base_url(where, entry.base_url), None
    if api_name != SERVED or api != "openai" or not base_url.startswith("http:"):
        check_api_name(location.at("api_name"), api_name)
    own = _metrics_url(location, entry.metrics_url, api)
    return Instance(name, api_name, base_url, own or metrics_url)


def ports_in_force(
    location: Location, table: ModelTable, sources: Sources, label: str
) -> tuple[int, ...] | None:
    """Return the ports of a model and record their origin; None if the model does not set any.

    The variable that `ports_env` names overrides `ports`. With `USE_MULTI_VLLM=false`, only the
    first port is used.

    Args:
        location: The model's place in the file.
        table: The model's table.
        sources: Provides the variables and records the origins.
        label: The name of the model in these records.

    Raises:
        ConfigError: The variable is unset or empty and there are no `ports`, or a port is not
            allowed.
    """
    listed = None if table.ports is None else check_ports(location.at("ports"), table.ports)
    origin = sources.file_name
    if (variable := table.ports_env) is not None:
        check_variable(location.at("ports_env"), variable)
        refuse_of_others(location.at("ports_env"), variable)
        text = sources.environ.get(variable, "").strip()
        if text:
            listed = parse_ports(Location("environment", variable), text)
            origin = f"environment {variable}"
        elif listed is None:
            location.at("ports_env").refuse(
                f"names the environment variable {variable}, which is unset or empty; set it to a"
                ' list such as "8001,8002"'
            )
    if listed is None:
        return None
    if sources.environment.get("use_multi_vllm") is False:
        listed = listed[:1]
        origin += ", only the first port because of environment USE_MULTI_VLLM"
    sources.note(f"{label} ports", ",".join(map(str, listed)), origin)
    return listed


def build_model(
    provider_place: Location, index: int, provider: ProviderTable, base_url: str, sources: Sources
) -> Model:
    """Make the model that a table describes, and record its numbers in `sources`.

    If a simulated model has no `latency_hint_s`, the exact mean of its latency is used.

    Args:
        provider_place: The provider's place in the file.
        index: The index of the model in the provider's table.
        provider: The provider's table.
        base_url: The provider's checked URL; empty for the simulated provider.
        sources: Provides the variables and records the origins.

    Raises:
        ConfigError: Something in the model's table is not allowed.
    """
    location, table = provider_place.at("model").item(index), provider.model[index]
    # A name may contain `/` only if the model lists its instances: ids then contain their names.
    parts = [table.name] if table.instances is None else table.name.split("/")
    for part in parts:
        check_name(location.at("name"), part)
    label = f"{provider.name}/{table.name}"
    ports = ports_in_force(location, table, sources, label)
    metrics_url = _metrics_url(provider_place, provider.metrics_url, provider.api)
    server = Instance(provider.name, "", base_url, metrics_url)
    instances = build_instances(location, table, provider, server, ports)
    if base_url:
        # All ports of one machine count as one server.
        urls = (base_url,) if ports is not None else (one.base_url for one in instances)
        sources.note(f"{label} {ADDRESS}", ", ".join(sorted({address_of(url) for url in urls})))
    hint_s = table.latency_hint_s
    for field in ("latency_hint_s", *PRICES):
        sources.note(f"{label} {field}", getattr(table, field))
    # A real model has a simulation, too: `ultrapar simulate` simulates it from the same file.
    simulation = build_simulation(location, table, provider_place, provider)
    if provider.api == SIMULATED:
        hint_s = hint_s or mean_s(simulation.latency) or None
        _note_simulation(label, simulation, table, provider, sources)
    stream = table.stream if table.stream is not None else provider.stream
    sources.note(f"{label} stream", stream)
    max_tokens = table.max_tokens or provider.max_tokens
    sources.note(f"{label} max_tokens", max_tokens)
    parameters = build_parameters(location, table, provider_place, provider)
    for name, sent_as in parameters.items():
        sources.note(f"{label} parameter {name}", "not sent" if sent_as is None else sent_as)
    return Model(
        name=table.name,
        instances=instances,
        latency_hint_s=hint_s,
        **{field: getattr(table, field) for field in PRICES},
        simulation=simulation,
        stream=stream or False,
        max_tokens=max_tokens,
        parameters=parameters,
    )


def _note_simulation(
    label: str, simulation: Simulation, table: ModelTable, provider: ProviderTable, sources: Sources
) -> None:
    of_latency = "default" if table.latency is None and provider.latency is None else None
    sources.note(f"{label} persona", simulation.persona, None if table.persona else "default")
    sources.note(f"{label} skill", simulation.skill, "default" if table.skill is None else None)
    for field in ("kind", "median_s", "sigma"):
        sources.note(f"{label} latency {field}", getattr(simulation.latency, field), of_latency)


DEFAULT_TIMEOUT_S = 150.0


def build_provider(location: Location, table: ProviderTable, sources: Sources) -> Provider:
    """Make the provider that a table describes, and record its numbers in `sources`.

    Raises:
        ConfigError: Something in the provider's table is not allowed.
    """
    name = check_name(location.at("name"), table.name)
    if name == "pool":
        location.at("name").refuse('must not be "pool": the limit on the whole pool has this name')
    api = table.api
    if api not in MODULES:
        check_word(location.at("api"), api, api_names())
        try:
            api_named(api)
        except ConfigError as error:
            location.at("api").refuse(str(error))
    base_url = _base_url(location.at("base_url"), table, api)
    api_version = _api_version(location.at("api_version"), table, api)
    keys = build_keys(location.at("keys"), table.keys, api, base_url)
    timeout_s = table.timeout_s or DEFAULT_TIMEOUT_S
    sources.note(f"{name} timeout_s", timeout_s, None if table.timeout_s else "default")
    if api == SIMULATED:
        sources.note(f"{name} simulation_seed", table.simulation_seed)
    if not table.model:
        location.at("model").refuse("is empty: a provider needs at least one [[provider.model]]")
    models = tuple(
        build_model(location, i, table, base_url, sources) for i in range(len(table.model))
    )
    check_different((location.at("model").item(i).at("name"), m.name) for i, m in enumerate(models))
    _check_instances(location.at("model"), models, keys)
    network = build_network(location, table, models, sources)
    provider = Provider(
        name,
        api,
        base_url,
        keys,
        models,
        timeout_s,
        api_version,
        table.simulation_seed or 0,
        network=network,
        patterns=build_patterns(location.at("patterns"), table.patterns or {}, sources, name),
    )
    if api != SIMULATED:
        _check_variables(location, provider)
    return provider


def _check_variables(location: Location, provider: Provider) -> None:
    # A pool that names its own certificate authorities can present any server as the host.
    urls = [each.base_url for model in provider.models for each in model.instances]
    hosts = {host_of(url) for url in urls} if provider.network.ca_file is None else ()
    for index, key in enumerate(provider.keys):
        if key.env is not None:
            where = location.at("keys").item(index).at("env")
            refuse_of_others(where, key.env, hosts)


def _base_url(location: Location, table: ProviderTable, api: str) -> str:
    if api == SIMULATED:
        if table.base_url is not None:
            location.refuse(
                'is not used by api = "simulated": the run starts its own server; leave it out'
            )
        return ""
    if table.base_url is None:
        location.refuse(f'is missing: api = "{api}" requires it')
    url = check_base_url(location, table.base_url)
    if (flaw := api_named(api).flaw_of(url)) is not None:
        location.refuse(flaw)
    return url


def _api_version(location: Location, table: ProviderTable, api: str) -> str | None:
    example = api_named(api).version_example
    if example is None:
        if table.api_version is not None:
            versioned = tuple(name for name in api_names() if api_named(name).version_example)
            location.refuse(f'requires api = {one_of(versioned)} (got api = "{api}")')
        return None
    if table.api_version is None:
        location.refuse(f'is missing: api = "{api}" requires it, such as "{example}"')
    return check_name(location, table.api_version)


def _check_instances(location: Location, models: tuple[Model, ...], keys: tuple[Key, ...]) -> None:
    places = [
        (location.item(m).at("instances").item(i), instance.name)
        for m, model in enumerate(models)
        for i, instance in enumerate(model.instances)
    ]
    check_different(places)
    key_names = {key.name for key in keys}
    for where, name in places:
        if name in key_names:
            # The instance's limit and the key's limit would both be called `<provider>/<name>`.
            where.refuse(f'"{name}" is also a key of this provider; rename the instance or the key')
