"""Route requests: find the provider and resource for a path, and the key of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from pytest_ultrapar.simulator.wire.resource import resource_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.served_pool import ServedProvider
    from pytest_ultrapar.simulator.wire.resource import Resource, ResourceName


class Target(NamedTuple):
    """The target of a path: a resource (POST), or a list to read (GET).

    Attributes:
        resource_name: The resource; None for a list.
        api_name: The API name of the instance, if the path contains it.
        metrics: Whether the target is the metrics, which require no key.
    """

    provider: ServedProvider
    resource_name: ResourceName | None = None
    api_name: str | None = None
    metrics: bool = False


def resource_of(scope: Scope) -> Resource:
    """Guess, from the path and the headers, which API's format a refusal must have."""
    names = {name for name, _ in scope["headers"]}
    if _GEMINI_ROOT in scope["path"] or b"x-goog-api-key" in names:
        return resource_named("generate_content")
    if names & {b"x-api-key", b"anthropic-version"}:
        return resource_named("messages")
    return resource_named("chat")


_GEMINI_ROOT = "/v1beta/"
_LISTS = ("/v1/models", "/openai/models", "/openai/v1/models")
_POSTED: dict[str, ResourceName] = {
    "/v1/chat/completions": "chat",
    "/openai/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/openai/responses": "responses",
    "/openai/v1/responses": "responses",
    "/v1/messages": "messages",
    "/openai/deployments/{}/chat/completions": "chat",
    "/v1/models/{}:generateContent": "generate_content",
    "/v1/models/{}:streamGenerateContent": "generate_content",
    "/v1beta/models/{}:generateContent": "generate_content",
    "/v1beta/models/{}:streamGenerateContent": "generate_content",
}
"""The resource for each POST path; braces stand for the model's name."""


def targets(providers: Iterable[ServedProvider]) -> dict[str, Target]:
    """Return all targets by their paths, which are unquoted, as in ASGI.

    Every provider has the paths of all APIs, including OpenAI's paths as Azure writes them. A
    provider has vLLM's metrics if one of its instances queues requests.
    """
    # Load this now, because most requests use it.
    resource_named("chat")
    found: dict[str, Target] = {}
    for provider in providers:
        root = f"/{provider.name}"
        for path in _LISTS:
            found[root + path] = Target(provider)
        if provider.server_models:
            found[f"{root}/metrics"] = Target(provider, metrics=True)
        for path, name in _POSTED.items():
            for api_name in provider.api_names if "{}" in path else (None,):
                found[root + path.format(api_name)] = Target(provider, name, api_name)
    return found


def presented_key(scope: Scope, provider: ServedProvider, resource: Resource) -> str | None:
    """Return the name of the key whose token the request contains; None if no token is known.

    The token is a bearer token, or is in the header or parameter that the API uses for keys.
    """
    own = resource.key_header
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return provider.keys.get(value[7:].strip())
        if name == own:
            return provider.keys.get(value)
    if own == b"x-goog-api-key" and (given := parse_qs(scope["query_string"]).get(b"key")):
        return provider.keys.get(given[0])
    return None
