"""The simulated provider, which the run itself starts.

`llm.chat()` uses its OpenAI API; SDKs can use all APIs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pytest_ultrapar.apis.openai import OpenAi

if TYPE_CHECKING:
    from collections.abc import Mapping


class Simulated(OpenAi):
    """`api = "simulated"`."""

    # Written out here, because the modules that define these paths are slow to load.
    serves: ClassVar[Mapping[str, str]] = {
        **OpenAi.serves,
        "/v1/messages": "anthropic",
        "/v1/models/{model}:generateContent": "gemini",
        "/v1/models/{model}:streamGenerateContent": "gemini",
        "/v1beta/models/{model}:generateContent": "gemini",
        "/v1beta/models/{model}:streamGenerateContent": "gemini",
    }

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """The URL of a path. OpenAI's paths follow the base URL; all others replace its `/v1`."""
        if path in OpenAi.serves:
            return super().resource_url(base_url, name, version, path)
        path = path.replace("/v1/models/", "/v1beta/models/")
        return base_url.removesuffix("/v1") + path.replace("{model}", name)


API = Simulated()
