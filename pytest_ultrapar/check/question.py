"""What a lane is asked, and how its answer is read: the smallest chat, or the list of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec

from pytest_ultrapar.engine.answer_meaning import read_answer
from pytest_ultrapar.engine.chat_request import request_body
from pytest_ultrapar.engine.endpoints import Endpoint, chat_url, models_url
from pytest_ultrapar.engine.failure import Failure
from pytest_ultrapar.engine.http import Answer
from pytest_ultrapar.pool.model import Instance, Provider

MESSAGES = [{"role": "user", "content": "Reply with OK."}]
PARAMETERS: dict[str, Any] = {"max_tokens": 1}
_ENDED_EARLY = "model output limit was reached"
"""OpenAI's reasoning models answer so (400) where they had no room for a word."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Question:
    """One way to ask whether a lane answers.

    Attributes:
        says: What is sent to each lane, for people.
        is_free: Whether no provider charges for it.
        url_of: Where an instance is asked, by its provider and base URL.
        prepared: The lane's endpoint as it is asked.
        body: What is sent there.
        read: What is wrong with an answer; None when nothing is. Takes the answer, the endpoint,
            and the seconds that it took.
    """

    says: str
    is_free: bool
    url_of: Callable[[Provider, Instance, str], str]
    prepared: Callable[[Endpoint], Endpoint]
    body: Callable[[Endpoint], bytes]
    read: Callable[[Answer | Failure, Endpoint, float], Failure | None]


def _chat_body(endpoint: Endpoint) -> bytes:
    return request_body(endpoint, MESSAGES, PARAMETERS)


def _read_chat(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Failure | None:
    result = read_answer(answer, endpoint.lane, latency_s)
    # A prompt that is refused was read: the lane works.
    if not isinstance(result, Failure) or result.outcome == "refused":
        return None
    if result.outcome == "bad_request" and _ENDED_EARLY in result.message:
        return None
    return result


class _Listed(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Listed]


def _read_models(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Failure | None:
    if isinstance(answer, Failure) or answer.status != HTTPStatus.OK:
        result = read_answer(answer, endpoint.lane, latency_s)
        return result if isinstance(result, Failure) else None
    try:
        models = [one.id for one in msgspec.json.decode(answer.body, type=_Models).data]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Failure("malformed", "the answer is no list of models")
    # Azure lists what could be deployed, under names that are none of a deployment.
    if endpoint.api == "azure-openai" or endpoint.api_name in models:
        return None
    more = f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
    listed = ", ".join(models[:_SHOWN]) or "nothing"
    return Failure("not_found", f"the server lists {listed}{more}")


CHAT = Question(
    says="one chat completion of 1 token",
    is_free=False,
    url_of=chat_url,
    prepared=lambda endpoint: endpoint,
    body=_chat_body,
    read=_read_chat,
)
MODELS = Question(
    says="one look at the list of models",
    is_free=True,
    url_of=models_url,
    prepared=lambda endpoint: replace(endpoint, method="GET", stream=False),
    body=lambda _: b"",
    read=_read_models,
)
