"""A model's answer, in the same form for all APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from pytest_ultrapar.apis.server_json import part_of, repaired
from pytest_ultrapar.apis.server_sent_events import EventReader

# Needed at run time, because msgspec reads the annotations of a reply that an episode returns.
Message = Mapping[str, Any]
"""One message in the chat-completions API: `role`, `content`, and possibly `tool_calls`."""
Messages = Sequence[Message]
NATIVE = "native"
"""The field of an assistant's message that holds `Reply.native`."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function call by the model, through the tool calling of the API.

    Attributes:
        call_id: The id that the message with the function's result must repeat (`tool_call_id`);
            empty if the server sent no id.
        name: The name of the function.
        arguments: The arguments as the model wrote them: JSON text, which may be invalid.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer from the model.

    Attributes:
        text: The content, or the refusal if there is no content; empty if the model sent neither.
        reasoning: The reasoning, if the API sends it separately; otherwise None.
        tool_calls: The calls that the model requests, in the model's order; may be empty.
        finish_reason: The reason why the answer ended, such as `stop`, `length` or `tool_calls`.
            Reasons that chat completions do not have keep the API's name.
        tokens_in: Prompt tokens as counted by the API; None if not reported.
        tokens_out: Completion tokens as counted by the API; None if not reported.
        lane: The lane that answered: `provider/instance/key`.
        latency_s: For the attempt that succeeded, the time from sending the request to the last
            byte of the answer, in seconds.
        refusal: The model's refusal, if the API sends it separately; otherwise None.
        reasoning_tokens: How many of the `tokens_out` were used for reasoning; None if not
            reported.
        cached_tokens: How many of the `tokens_in` were read from a cache; None if not reported.
        id: The API's id for the answer.
        model: The model that answered, as the API names it.
        stop_reason: The reason why the answer ended, in the API's own words.
        others: The other choices, if `n` was above 1. The token counts of each choice cover the
            whole answer.
        body: The answer as text: JSON, or the events of a stream. Empty if unknown.
        native: The model's turn in the API's own form: a mapping with the API's name in `api`, and
            the blocks or items in `turn`. None if `text` and `tool_calls` contain everything, as in
            chat completions and in answers without reasoning.
        cache_write_tokens: How many of the `tokens_in` were written to a cache; None if not
            reported.
    """

    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    tokens_in: int | None
    tokens_out: int | None
    lane: str
    latency_s: float
    refusal: str | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    # Comparisons ignore ids and names: two answers with the same content are equal.
    id: str | None = field(default=None, compare=False)
    model: str | None = field(default=None, compare=False)
    stop_reason: str | None = field(default=None, compare=False)
    others: tuple[Reply, ...] = ()
    body: str = field(default="", compare=False, repr=False)
    native: Mapping[str, Any] | None = None
    cache_write_tokens: int | None = None

    def __repr__(self) -> str:
        """The fields that have a value, for the message of a failed assert."""
        shown = [(one.name, getattr(self, one.name)) for one in fields(self) if one.repr]
        said = ", ".join(f"{name}={value!r}" for name, value in shown if value not in (None, ()))
        return f"Reply({said})"

    @property
    def choices(self) -> tuple[Reply, ...]:
        """All choices in the answer, this one first; only this one unless `n` was above 1."""
        return (self, *self.others)

    @property
    def raw(self) -> Any:  # noqa: ANN401 - any JSON
        """The answer's body as plain data, or None if there is no body.

        Each access decodes it again. The data of a stream is the list of its events.
        """
        body = self.body.encode()
        whole = _plain(body)
        if whole is not None:
            return whole
        reader = EventReader()
        events = [*reader.feed(body), *reader.end()]
        return [_plain(event) for event in events if event.strip() != b"[DONE]"] or None

    @property
    def logprobs(self) -> Any:  # noqa: ANN401 - as the API has them
        """The log probabilities in a chat completion, if they were requested.

        The pieces of a stream are joined.
        """
        raw = self.raw
        whole: dict[str, Any] = {}
        for body in raw if isinstance(raw, list) else [raw]:
            choices = body.get("choices") if isinstance(body, dict) else None
            for choice in choices or ():
                found = choice.get("logprobs")
                if choice.get("index") not in (None, 0, "0") or not isinstance(found, dict):
                    continue
                for name, value in found.items():
                    earlier = whole.get(name)
                    if isinstance(earlier, list) and isinstance(value, list):
                        earlier.extend(value)
                    else:
                        whole[name] = value or earlier
        return whole or None

    @property
    def message(self) -> dict[str, Any]:
        """The reply as the next message in its conversation, with tool calls and their ids.

        If the API requires that the reasoning is sent back, the message contains it as `native`.
        If the message is sent to another API, only its text and calls are used.
        """
        said: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            said["content"] = self.text or None
            said["tool_calls"] = [_sent_back(call) for call in self.tool_calls]
        if self.native is not None:
            said[NATIVE] = self.native
        return said


def as_one_body(reply: Reply, usage: object = None, *, is_text: bool = False) -> bytes:
    """Encode a reply as a chat completion that was not streamed.

    Args:
        reply: The reply with all its choices.
        usage: The usage from the server; None to use the reply's own counts.
        is_text: Whether to use the form of `/completions`, with texts instead of messages.
    """
    usage = usage or {"prompt_tokens": reply.tokens_in, "completion_tokens": reply.tokens_out}
    choices: list[dict[str, Any]] = []
    for number, one in enumerate(reply.choices):
        message = {**one.message, "reasoning": one.reasoning, "refusal": one.refusal}
        said = {"text": one.text, "logprobs": None} if is_text else {"message": message}
        choices.append({"index": number, **said, "finish_reason": one.finish_reason})
    kind = "text_completion" if is_text else "chat.completion"
    named = {"id": reply.id, "object": kind, "created": 0, "model": reply.model}
    return msgspec.json.encode({**named, "choices": choices, "usage": usage})


def body_text(body: bytes) -> str:
    """Decode an answer, or a part of one, for `Reply.body`; invalid UTF-8 is repaired."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return (repaired(body) or body).decode("utf-8", "backslashreplace")


def _plain(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    return part_of(text, object) or part_of(repaired(text) or b"", object)


def _sent_back(call: ToolCall) -> dict[str, Any]:
    own_id = {"id": call.call_id} if call.call_id else {}
    function = {"name": call.name, "arguments": call.arguments}
    return {**own_id, "type": "function", "function": function}
