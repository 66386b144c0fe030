"""The differences between Azure OpenAI and OpenAI: addresses, and the header with the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

from pytest_ultrapar.apis.openai import RESPONSES_PATH, OpenAi, encode_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.apis.reply import Messages


class Azure(OpenAi):
    """`api = "azure-openai"`: instances are deployments, named in the URL instead of the body."""

    version_example: ClassVar[str | None] = "2024-10-21"
    endpoint_noun: ClassVar[str] = "deployment"
    base_url_hint: ClassVar[str] = ""

    def flaw_of(self, base_url: str) -> str | None:
        """An error message if the URL already contains what the plugin would append; else None."""
        if "/openai" in urlsplit(base_url).path:
            # ".../openai/v1" is OpenAI's own API.
            return (
                'must be the resource\'s address without "/openai" or anything after it'
                ' (for Azure\'s ".../openai/v1", set api = "openai")'
            )
        return None

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """The URL of the deployment; in the Responses API, the body names the deployment."""
        of = "" if path == RESPONSES_PATH else f"/deployments/{quote(name, safe='')}"
        return _resource(base_url, of + path, version)

    def headers(self, token: str) -> dict[str, str]:
        """The authentication header."""
        return {"api-key": token}

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body, without a model name."""
        return encode_request(None, messages, parameters)


def _resource(base_url: str, path: str, version: str | None) -> str:
    query = f"api-version={quote(version or '', safe='')}"
    return f"{base_url.rstrip('/')}/openai{path}?{query}"


API = Azure()
