"""Acme's API: chat completions under other names. `OpenAi` provides the common parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import OpenAi
from pytest_ultrapar.apis.reply import Messages, Reply


class Acme(OpenAi):
    """Requests go to `/ask`; an answer is `{"said": ..., "cost": [tokens in, tokens out]}`."""

    def url(self, base_url: str, name: str, version: str | None) -> str:
        return f"{base_url}/ask/{name}"

    def headers(self, token: str) -> dict[str, str]:
        return {"x-acme-key": token}

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        if set(parameters) - {"max_tokens"}:
            msg = f'llm.chat() got {min(parameters)!r}, which has no counterpart in api = "acme"'
            raise TypeError(msg)
        return json.dumps({"talk": [one["content"] for one in messages], **parameters}).encode()

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        try:
            answer = json.loads(body)
            said, (tokens_in, tokens_out) = str(answer["said"]), answer["cost"]
        except (ValueError, TypeError, LookupError) as error:
            return Failure("malformed", f"not an answer of Acme's API: {error}", maybe_billed=True)
        return Reply(said, None, (), "stop", tokens_in, tokens_out, lane, latency_s)


API = Acme()
