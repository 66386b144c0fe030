"""What a lane is asked, and how its answer is read: the smallest chat, or the list of models."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.engine.answer_meaning import read_answer
from pytest_ultrapar.engine.chat_request import request_body
from pytest_ultrapar.engine.endpoints import chat_url, models_url
from pytest_ultrapar.engine.failure import Failure

if TYPE_CHECKING:
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.http import Answer

MESSAGES = [{"role": "user", "content": "Reply with OK."}]
PARAMETERS: dict[str, Any] = {"max_tokens": 1}
_ENDED_EARLY = "model output limit was reached"
"""OpenAI's reasoning models answer so (400) where they had no room for a word."""
_SHOWN = 5


class SmallestChat:
    """One chat completion of one token.

    Attributes:
        says: What is sent to each lane, for people.
        is_free: Whether no provider charges for it.
        url_of: Where an instance is asked, by its provider and base URL.
    """

    says = "one chat completion of 1 token"
    is_free = False
    url_of = staticmethod(chat_url)

    @staticmethod
    def prepared(endpoint: Endpoint) -> Endpoint:
        """The lane's endpoint as it is asked."""
        return endpoint

    @staticmethod
    def body(endpoint: Endpoint) -> bytes:
        """What is sent there."""
        return request_body(endpoint, MESSAGES, PARAMETERS)

    @staticmethod
    def read(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Failure | None:
        """What is wrong with an answer that took so long; None when nothing is."""
        result = read_answer(answer, endpoint.lane, latency_s)
        # A prompt that is refused was read: the lane works.
        if not isinstance(result, Failure) or result.outcome == "refused":
            return None
        if result.outcome == "bad_request" and _ENDED_EARLY in result.message:
            return None
        return result


class ModelList:
    """One look at the server's list of models; attributes and methods as `SmallestChat`."""

    says = "one look at the list of models"
    is_free = True
    url_of = staticmethod(models_url)

    @staticmethod
    def prepared(endpoint: Endpoint) -> Endpoint:
        """The lane's endpoint as it is asked."""
        return replace(endpoint, method="GET", stream=False)

    @staticmethod
    def body(_: Endpoint) -> bytes:
        """What is sent there."""
        return b""

    @staticmethod
    def read(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Failure | None:
        """What is wrong with an answer that took so long; None when nothing is."""
        if isinstance(answer, Failure) or answer.status != HTTPStatus.OK:
            result = read_answer(answer, endpoint.lane, latency_s)
            return result if isinstance(result, Failure) else None
        try:
            models = [one.id for one in msgspec.json.decode(answer.body, type=_Models).data]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Failure("malformed", "the answer is not a list of models")
        # Azure lists what could be deployed, under names that are none of a deployment.
        if endpoint.api == "azure-openai" or endpoint.api_name in models:
            return None
        more = f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
        listed = ", ".join(models[:_SHOWN]) or "nothing"
        return Failure("not_found", f"the server lists {listed}{more}")


Question = SmallestChat | ModelList


class _Listed(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Listed]
