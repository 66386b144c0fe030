"""The provider that a run starts itself: OpenAI's API for `llm.chat()`, all APIs for SDKs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_ultrapar.apis.openai import OpenAi


class Simulated(OpenAi):
    """`api = "simulated"`."""

    # In words, for the modules that have these paths take their time to load.
    serves: ClassVar[Mapping[str, str]] = {
        **OpenAi.serves,
        "/v1/messages": "anthropic",
        "/v1beta/models/{model}:generateContent": "gemini",
        "/v1beta/models/{model}:streamGenerateContent": "gemini",
    }

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """OpenAI's below its `/v1`, all others beside it."""
        if path in OpenAi.serves:
            return super().resource_url(base_url, name, version, path)
        return base_url.removesuffix("/v1") + path.replace("{model}", name)


API = Simulated()
