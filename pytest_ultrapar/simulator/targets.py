"""What the paths of the server mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from pytest_ultrapar.simulator.served import ServedProvider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.simulator.asgi import Scope


@dataclass(frozen=True, slots=True)
class Target:
    """A provider's list of models or metrics (GET), or its chat completions (POST).

    Attributes:
        deployment: The instance's api_name where the path holds it, as Azure's does.
        metrics: Whether it is the metrics, which need no key.
    """

    provider: ServedProvider
    method: str
    deployment: str | None = None
    metrics: bool = False


def base_path(provider: str) -> str:
    """The path of a provider's base URL, to which clients add `/chat/completions`."""
    return f"/{quote(provider, safe='')}/v1"


def targets(providers: Iterable[ServedProvider]) -> dict[str, Target]:
    """Every target by its path, unquoted, as ASGI gives it.

    Both OpenAI's and Azure's paths are served for every provider, and vLLM's metrics for those with
    an instance where requests queue.
    """
    found: dict[str, Target] = {}
    for provider in providers:
        root = f"/{provider.name}"
        found[f"{root}/v1/models"] = Target(provider, "GET")
        found[f"{root}/openai/models"] = Target(provider, "GET")
        if provider.stations:
            found[f"{root}/metrics"] = Target(provider, "GET", metrics=True)
        found[f"{root}/v1/chat/completions"] = Target(provider, "POST")
        for api_name in provider.api_names:
            path = f"{root}/openai/deployments/{api_name}/chat/completions"
            found[path] = Target(provider, "POST", api_name)
    return found


def presented_key(scope: Scope, provider: ServedProvider) -> str | None:
    """Name of the key whose token the request carries, as bearer or in Azure's `api-key`."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return provider.keys.get(value[7:].strip())
        if name == b"api-key":
            return provider.keys.get(value)
    return None
