"""OpenAI's completions: prompts that are gone on with, and how likely each of their tokens is.

Source: OpenAI's API reference and the types of its official Python client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import Request
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.stream import TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import openai

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.stream import Piece
    from pytest_ultrapar.simulator.wire.resource import Hollow


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _WireRequest(msgspec.Struct):
    prompt: openai.Prompts
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    seed: int | None = None
    n: openai.Count | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    stop: str | list[str] | None = None
    logprobs: openai.Top | None = None
    echo: bool | None = None


_decoder = msgspec.json.Decoder(_WireRequest)
_encode = msgspec.json.encode
_MAX_TOKENS = 16  # as OpenAI has it where a request says nothing


class Completions:
    """See `wire.resource.Resource`."""

    api = openai.API

    def read(self, body: bytes, *, name: str | None, key: str, scope: Scope) -> Request | ApiError:
        """A request in which each prompt is a conversation of its own."""
        del key, scope
        try:
            wire = _decoder.decode(body)
        except UNREADABLE as error:
            return ApiError.bad_request(f"The body is no completions request: {error}")
        texts = openai.texts(wire.prompt, "prompt")
        if isinstance(texts, ApiError):
            return texts
        api_name = name or wire.model
        if not api_name:
            return ApiError.bad_request("`model` is missing", param="model")
        return Request(
            api_name,
            [ChatMessage("user", text) for text in texts],
            wire.seed,
            bool(wire.stream),
            wire.stream_options is not None and bool(wire.stream_options.include_usage),
            n=wire.n or 1,
            max_tokens=_MAX_TOKENS if wire.max_tokens is None else wire.max_tokens,
            stop=() if wire.stop is None else openai.stops(wire.stop),
            top_logprobs=wire.logprobs,
            apart=True,
            echo=bool(wire.echo),
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """All choices, those of the first prompt first."""
        choices = [
            _choice(index, text, reply.finish_reason, _logprobs(request, completion, index))
            for index, (text, reply) in enumerate(
                zip(_texts(request, completion), completion.replies, strict=True)
            )
        ]
        usage = openai.wire_usage(completion.usage)
        return _encode({**_head(request, completion), "choices": choices, "usage": usage})

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """The choices one after the other; usage in a chunk without any."""
        head = _head(request, completion)
        told = {"usage": None} if request.include_usage else {}
        chunks: list[dict[str, object]] = []
        texts = _texts(request, completion)
        for index, (text, reply) in enumerate(zip(texts, completion.replies, strict=True)):
            chunks += [
                {**head, "choices": [_choice(index, piece, None, None)], **told}
                for piece in cut(text, TEXT_PIECES)
            ]
            last = _choice(index, "", reply.finish_reason, _logprobs(request, completion, index))
            chunks.append({**head, "choices": [last], **told})
        if told:
            usage = openai.wire_usage(completion.usage)
            chunks.append({**head, "choices": [], "usage": usage})
        events = [as_event(_encode(chunk)) for chunk in chunks]
        events[-1] += as_event(b"[DONE]")
        return spread(events)

    def hollow(self, form: Hollow) -> bytes:
        """A completion without a choice or a text."""
        choices: dict[Hollow, list[dict[str, object]]] = {
            "empty-choices": [],
            "no-message": [{"index": 0, "finish_reason": "stop"}],
            "null-content": [{"index": 0, "text": None, "finish_reason": "stop"}],
        }
        head = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "m"}
        usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
        return _encode({**head, "choices": choices[form], "usage": usage})


RESOURCE = Completions


def _head(request: Request, completion: Completion) -> dict[str, object]:
    return {
        "id": f"cmpl-{completion.name}",
        "object": "text_completion",
        "created": 0,
        "model": request.api_name,
    }


def _texts(request: Request, completion: Completion) -> list[str]:
    """The text of each choice, its prompt before it where that is asked for."""
    said = [reply.content for reply in completion.replies]
    if not request.echo:
        return said
    prompts = [one.content for one in request.messages for _ in range(request.n)]
    return [prompt + text for prompt, text in zip(prompts, said, strict=True)]


def _choice(
    index: int, text: str, finish_reason: str | None, logprobs: dict[str, object] | None
) -> dict[str, object]:
    return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": logprobs}


def _logprobs(request: Request, completion: Completion, index: int) -> dict[str, object] | None:
    if not completion.logprobs:
        return None
    tokens = completion.logprobs[index]
    offsets = []
    n_characters = 0
    for one in tokens:
        offsets.append(n_characters)
        n_characters += len(one.token)
    # Nothing stands before the first token of a prompt, so nobody can say how likely it is.
    unknown = 1 if request.echo and tokens else 0
    return {
        "tokens": [one.token for one in tokens],
        "token_logprobs": [None] * unknown + [one.logprob for one in tokens[unknown:]],
        "top_logprobs": [None] * unknown + [dict(one.top) for one in tokens[unknown:]],
        "text_offset": offsets,
    }
