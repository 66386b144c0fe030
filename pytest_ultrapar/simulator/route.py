"""Where requests go: each path with its provider and resource, and who may ask there."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from pytest_ultrapar.simulator.wire.resource import api_named, new_resource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.served import ServedProvider
    from pytest_ultrapar.simulator.wire.resource import Api, ApiName, Resource, ResourceName


class Station:
    """A resource of one provider, whose module is loaded when the first request comes."""

    def __init__(self, name: ResourceName) -> None:
        self._name = name

    @cached_property
    def resource(self) -> Resource:
        """Reads requests and writes answers."""
        return new_resource(self._name)


class Target(NamedTuple):
    """What a path leads to: a resource that is asked (POST), or what is looked up (GET).

    Attributes:
        station: None for what is looked up.
        name: The api_name of the instance where the path holds it.
        metrics: Whether it is the metrics, which need no key.
    """

    provider: ServedProvider
    method: str
    station: Station | None = None
    name: str | None = None
    metrics: bool = False

    def api(self, scope: Scope) -> Api:
        """The API in whose shape the request is answered."""
        return api_of(scope) if self.station is None else self.station.resource.api


def api_of(scope: Scope) -> Api:
    """The API that a request speaks by its path and headers, where its path is nobody's own."""
    names = {name for name, _ in scope["headers"]}
    name: ApiName = "openai"
    if GEMINI_ROOT in scope["path"] or b"x-goog-api-key" in names:
        name = "gemini"
    elif names & {b"x-api-key", b"anthropic-version"}:
        name = "anthropic"
    return api_named(name)


GEMINI_ROOT = "/v1beta/"
_POSTED: tuple[tuple[str, ResourceName], ...] = (
    ("chat/completions", "chat"),
    ("responses", "responses"),
)
_OPENAI_ROOTS = ("v1", "openai/v1")
_VERBS = ("generateContent", "streamGenerateContent")


def targets(providers: Iterable[ServedProvider]) -> dict[str, Target]:
    """Every target by its path, unquoted, as ASGI gives it.

    All APIs' paths are served for every provider, OpenAI's as Azure has them, too, and vLLM's
    metrics for those with an instance where requests queue.
    """
    found: dict[str, Target] = {}
    for provider in providers:
        root = f"/{provider.name}"
        lists = [f"{root}/v1/models", f"{root}/openai/models", f"{root}/openai/v1/models"]
        for path in [*lists, f"{root}{GEMINI_ROOT}models"]:
            found[path] = Target(provider, "GET")
            for api_name in provider.api_names:
                found[f"{path}/{api_name}"] = Target(provider, "GET", name=api_name)
        if provider.server_models:
            found[f"{root}/metrics"] = Target(provider, "GET", metrics=True)
        for path, name in _POSTED:
            station = Station(name)
            if name == "chat":
                station.resource  # noqa: B018 - loads what most requests ask before the first does
            for base in _OPENAI_ROOTS:
                found[f"{root}/{base}/{path}"] = Target(provider, "POST", station)
            # Responses have no deployment in their path.
            if name == "responses":
                found[f"{root}/openai/{path}"] = Target(provider, "POST", station)
                continue
            for api_name in provider.api_names:
                deployment = f"{root}/openai/deployments/{api_name}/{path}"
                found[deployment] = Target(provider, "POST", station, api_name)
        found[f"{root}/v1/messages"] = Target(provider, "POST", Station("messages"))
        station = Station("generate_content")
        for api_name in provider.api_names:
            for base, verb in product(("/v1/", GEMINI_ROOT), _VERBS):
                path = f"{root}{base}models/{api_name}:{verb}"
                found[path] = Target(provider, "POST", station, api_name)
    return found


def presented_key(scope: Scope, provider: ServedProvider, api: Api) -> str | None:
    """Name of the key whose token the request carries, as bearer or where its API has it."""
    own = api.key_header
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return provider.keys.get(value[7:].strip())
        if name == own:
            return provider.keys.get(value)
    if own == b"x-goog-api-key" and (given := parse_qs(scope["query_string"]).get(b"key")):
        return provider.keys.get(given[0])
    return None
