"""Where the requests of each lane go, with the secret that opens the door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.engine import azure_api, openai_api
from pytest_ultrapar.pool.model import Api, LaneId
from pytest_ultrapar.pool.route import DIRECT, Route, place_of, route_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.pool.model import Instance, Pool, Provider


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """One lane's address.

    Attributes:
        url: Full URL of what is asked; in a run the chat-completions resource.
        token: The secret of the lane's key, in the clear; never shown (`repr` hides it).
        api_name: The model or deployment name to send.
        timeout_s: Total deadline of one request.
        stream: Whether answers are asked for as streams.
        parameters: Under which name a suite's parameter is sent, where not under its own; None: it
            is not sent.
        reads_allowance: Whether the headers of all its answers are read for the provider's own
            limits; those of failures are in any case.
        route: How its server is reached.
        method: How it is asked.
    """

    lane: LaneId
    provider: str
    instance: str
    key: str
    url: str
    token: str
    api_name: str
    timeout_s: float
    api: Api = "openai"
    stream: bool = False
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    reads_allowance: bool = False
    route: Route = DIRECT
    method: Literal["GET", "POST"] = "POST"

    @property
    def authentication(self) -> dict[str, str]:
        """The header that carries the secret."""
        if self.api == "azure-openai":
            return azure_api.authentication(self.token)
        return openai_api.authentication(self.token)

    @property
    def model_in_body(self) -> str | None:
        """The model's name in a request's body; None where only the URL names it."""
        return None if self.api == "azure-openai" else self.api_name

    def __repr__(self) -> str:
        return f"Endpoint({self.lane!r}, url={self.url!r}, token='***')"


def chat_url(provider: Provider, instance: Instance, base_url: str) -> str:
    """Where an instance's chat completions are."""
    if provider.api == "azure-openai":
        return azure_api.url(base_url, instance.api_name, provider.api_version or "")
    return openai_api.url(base_url)


def models_url(provider: Provider, instance: Instance, base_url: str) -> str:
    """Where an instance's server lists its models."""
    if provider.api == "azure-openai":
        return azure_api.models_url(base_url, provider.api_version or "")
    return openai_api.models_url(base_url)


def endpoints(
    pool: Pool,
    *,
    token_of: Callable[[str, str], str],
    base_url_of: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    url_of: Callable[[Provider, Instance, str], str] = chat_url,
) -> dict[LaneId, Endpoint]:
    """The endpoint of every lane of the pool.

    Args:
        pool: Where the lanes are.
        token_of: The secret of (provider, key).
        base_url_of: Base URL by provider where it is known at run time only (the simulated
            provider).
        environ: The environment's variables, for proxies and trust; None: there are none.
        url_of: What is asked of an instance, by its provider and base URL.

    Raises:
        ConfigError: A variable does not hold the proxy that it should.
    """
    place_of_provider = {p.name: place_of(pool, n) for n, p in enumerate(pool.providers)}
    found: dict[LaneId, Endpoint] = {}
    providers = {provider.name: provider for provider in pool.providers}
    for lane in pool.lanes:
        provider = providers[lane.provider]
        model = next(m for m in provider.models if m.name == lane.model)
        instance = next(i for i in model.instances if i.name == lane.instance)
        base_url = base_url_of.get(provider.name) or instance.base_url or provider.base_url
        url = url_of(provider, instance, base_url)
        route = route_to(provider.network, url, environ or {}, place_of_provider[provider.name])
        found[lane.lane_id] = Endpoint(
            lane=lane.lane_id,
            provider=provider.name,
            instance=instance.name,
            key=lane.key,
            url=url,
            token=token_of(provider.name, lane.key),
            api_name=instance.api_name,
            timeout_s=provider.timeout_s,
            api=provider.api,
            stream=model.stream,
            parameters=model.parameters,
            reads_allowance=provider.rate_mode == "adaptive",
            route=route,
        )
    return found
