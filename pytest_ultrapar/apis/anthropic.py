"""Anthropic's Messages API: translates chat completions, and reads answers and streams.

The module contains the API's interface, then requests, answers, streams, and the wire shapes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from pytest_ultrapar.apis.answer_reading import (
    CALL_WITHOUT_ID,
    MOST_TOOL_CALLS,
    NOTHING,
    Answer,
    EventStream,
    Usage,
    answered,
    broken_off,
    decoded,
    is_nothing,
    joined,
    malformed,
)
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import OpenAi
from pytest_ultrapar.apis.rate_headers import parse_anthropic_allowance
from pytest_ultrapar.apis.reply import NATIVE, Message, Messages, Reply, ToolCall, body_text
from pytest_ultrapar.apis.server_json import part_of
from pytest_ultrapar.apis.translation import OF_OPENAI, Function, Translator, object_of, of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.apis.outcome import Allowance

NAME = "anthropic"
MESSAGES_PATH = "/v1/messages"
_VERSION = "2023-06-01"
MAX_TOKENS = 4096
"""The maximum length of an answer, in tokens, if neither the suite nor the pool sets one. The API
requires a maximum, and every model accepts this one."""


class Anthropic(OpenAi):
    """`api = "anthropic"`. `registry.Api` explains each attribute and method."""

    path: ClassVar[str] = MESSAGES_PATH
    base_url_hint: ClassVar[str] = ""
    streamed: ClassVar[Mapping[str, Any]] = {"stream": True}
    has_state: ClassVar[bool] = True
    serves: ClassVar[Mapping[str, str]] = {MESSAGES_PATH: NAME}
    base_paths: ClassVar[str] = ""

    def flaw_of(self, base_url: str) -> str | None:
        """An error message if the URL already contains what the plugin would append; else None."""
        if urlsplit(base_url).path.rstrip("/").endswith(("/v1", "/messages")):
            return 'must be the address without "/v1" or anything after it'
        return None

    def headers(self, token: str) -> dict[str, str]:
        """The header with the key, and the header with the supported version of the API."""
        return {"x-api-key": token, "anthropic-version": _VERSION}

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body, translated from a chat completion."""
        return _encoder.encode(_request(name, messages, parameters))

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in a 200 response, or a failure if the response cannot be used."""
        message = answered(body, _message_decoder, "message")
        if isinstance(message, Failure):
            return message
        if is_nothing(message.content):
            if message.stop_reason is None:
                return malformed("the answer's message has no content, not even empty content")
            message.content = msgspec.Raw(b"[]")
        blocks = decoded(bytes(message.content), _blocks_decoder, "message")
        if isinstance(blocks, Failure):
            return blocks
        reply = _reply(message, blocks, Usage.of(message.usage), lane, latency_s)
        if isinstance(reply, Failure) or all(block.type in _PLAIN_BLOCKS for block in blocks):
            return reply
        turn = decoded(bytes(message.content), _turn_decoder, "message")
        if isinstance(turn, Failure):
            return turn
        return replace(reply, native={"api": NAME, "turn": turn})

    def stream(self) -> MessageStream:
        """A new reader of one streamed answer."""
        return MessageStream()

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """The limits in the headers `anthropic-ratelimit-*`."""
        return parse_anthropic_allowance(headers)


_translate = Translator(
    NAME, OF_OPENAI | {"seed": None, "presence_penalty": 0, "frequency_penalty": 0}
)
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_FOREIGN_PARTS = frozenset({"input_audio", "file", "refusal"})
"""Kinds of parts in chat completions that this API lacks. The API checks other unknown parts."""


def _request(name: str, messages: Messages, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _translate.parameters(given)
    most = _translate.bound(parameters)
    system, turns = _translate.conversation(messages, _MADE)
    longest = MAX_TOKENS if most is None else most
    body: dict[str, Any] = {"model": name, "max_tokens": longest, "messages": turns}
    if system:
        one_text = len(system) == 1 and system[0].keys() == {"type", "text"}
        body["system"] = system[0]["text"] if one_text else system
    if (stop := parameters.pop("stop", None)) is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if (tools := parameters.pop("tools", None)) is not None:
        body["tools"] = [_tool(tool) for tool in _translate.functions(tools)]
    choice = _tool_choice(
        parameters.pop("tool_choice", None), parameters.pop("parallel_tool_calls", True)
    )
    if choice is not None:
        body["tool_choice"] = choice
    if (user := parameters.pop("user", None)) is not None:
        body["metadata"] = {"user_id": user}
    if (wanted := parameters.pop("response_format", None)) is not None:
        schema = _translate.schema(wanted)
        if schema is not None:
            as_json = {"type": "json_schema", "schema": schema["schema"]}
            body["output_config"] = {**parameters.pop("output_config", {}), "format": as_json}
        elif wanted["type"] != "text":
            _translate.refuse("response_format of type 'json_object'")
    match parameters.get("thinking"):
        case {"budget_tokens": int(n)} if most is None:
            # The maximum must leave room for the thinking.
            body["max_tokens"] += n
    return body | parameters


def _tool(tool: Mapping[str, Any] | Function) -> Mapping[str, Any]:
    if not isinstance(tool, Function):
        return tool
    return tool.said("input_schema") | ({"strict": True} if tool.strict else {})


def _tool_choice(choice: object, in_parallel: object) -> Mapping[str, Any] | None:
    said: dict[str, Any]
    match choice:
        case None:
            if in_parallel is not False:
                return None
            said = {"type": "auto"}
        case {"type": "function", "function": {"name": str(name)}}:
            said = {"type": "tool", "name": name}
        case str(word) if word in _TOOL_CHOICES:
            said = {"type": _TOOL_CHOICES[word]}
        case {"type": "auto" | "any" | "tool" | "none"}:
            said = dict(choice)  # type: ignore[call-overload]
        case _:
            _translate.refuse("this tool_choice")
    if in_parallel is False and said["type"] != "none":
        said["disable_parallel_tool_use"] = True
    return said


def _content(message: Message, place: str) -> str | list[Mapping[str, Any]]:
    return _translate.content(message, place, _block)


def _blocks(message: Message, place: str) -> list[Mapping[str, Any]]:
    return [_block(part, where) for part, where in _translate.parts(message, place)]


def _block(part: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        image = _translate.image(part, place)
        if image.detail not in {None, "auto"}:
            _translate.refuse(f"{place}.image_url.detail")
        source = {"type": "url", "url": image.url}
        if image.media_type:
            source = {"type": "base64", "media_type": image.media_type, "data": image.content}
        return {"type": "image", "source": source}
    if kind in _FOREIGN_PARTS:
        _translate.refuse(f"{place} of type {kind!r}")
    return part


def _result(message: Message, place: str) -> dict[str, Any]:
    call_id, content = _translate.called(message, place), _content(message, place)
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def _said(message: Message, place: str) -> str | Sequence[Mapping[str, Any]]:
    """A turn of the model: its original blocks if stored and unchanged, else text and calls."""
    calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": object_of(arguments)}
        for call_id, name, arguments in _translate.calls(message, place)
    ]
    text = _translate.said(message, place)
    match message.get(NATIVE):
        case {"api": str(api), "turn": list(turn)} if api == NAME:
            used = [{name: one.get(name) for name in _CALL} for one in of_kind(turn, "tool_use")]
            whole = "".join(one.get("text") or "" for one in of_kind(turn, "text"))
            if used == calls and whole == text:
                # The API refuses an empty text block.
                return [one for one in turn if one != _NO_TEXT]
    if not calls:
        return text
    return [{"type": "text", "text": text}, *calls] if text else calls


# Newer models accept a system message between turns; for other models, the API returns an error.
_MADE = {"user": _content, "assistant": _said, "tool": _result, "system": _blocks, "late": _blocks}
_NO_TEXT = {"type": "text", "text": ""}
_CALL = ("type", "id", "name", "input")


_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
"""Other reasons, such as `pause_turn`, keep the API's name, because chat completions have no
equivalent."""
_PLAIN_BLOCKS = frozenset({"text", "tool_use"})


def _reply(
    message: _Message, blocks: Sequence[_Block], usage: Usage, lane: str, latency_s: float
) -> Reply | Failure:
    said = part_of(message.stop_details, dict[str, Any]) or {}
    failure = broken_off(message.stop_reason, str(said.get("explanation") or ""))
    calls = tuple(
        ToolCall(block.id or "", block.name or "", body_text(bytes(block.input)))
        for block in blocks
        if block.type == "tool_use"
    )
    if failure is None and not all(call.call_id for call in calls):
        failure = malformed(CALL_WITHOUT_ID)
    cached = usage.count("cache_read_input_tokens")
    written = usage.count("cache_creation_input_tokens")
    tokens_in = usage.count("input_tokens")
    if tokens_in is not None:
        # The API counts tokens written to and read from a cache separately.
        tokens_in += (cached or 0) + (written or 0)
    reply = Reply(
        text="".join(block.text or "" for block in blocks if block.type == "text"),
        reasoning="\n".join(block.thinking for block in blocks if block.thinking) or None,
        tool_calls=calls,
        finish_reason=_FINISH_REASONS.get(message.stop_reason or "", message.stop_reason),
        tokens_in=tokens_in,
        tokens_out=usage.count("output_tokens"),
        lane=lane,
        latency_s=latency_s,
        reasoning_tokens=usage.count("thinking_tokens", "output_tokens_details"),
        id=part_of(message.id, str, "id"),
        model=part_of(message.model, str, "model"),
        cached_tokens=cached,
        stop_reason=message.stop_reason,
        cache_write_tokens=written,
    )
    return reply if failure is None else replace(failure, came=reply)


class MessageStream(EventStream["_Event"]):
    """The events of one answer that have arrived so far.

    Source: docs.claude.com, "Streaming messages". A block begins, grows with each delta and ends.
    The stop reason and the final usage come in a separate event; `message_stop` is the end.
    """

    def __init__(self) -> None:
        super().__init__(_event_decoder, "message event")
        self._message = _Message()
        self._usage = Usage()
        self._growing: dict[int, _Growing] = {}
        self._said_stop = False

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        grown = [one for _, one in sorted(self._growing.items())]
        turn = [one.whole() for one in grown]
        blocks = [one.block(whole) for one, whole in zip(grown, turn, strict=True)]
        reply = _reply(self._message, blocks, self._usage, lane, latency_s)
        if not (self._said_stop or self._message.stop_reason):
            return self._cut_off(reply.came if isinstance(reply, Failure) else reply)
        if isinstance(reply, Failure) or all(block.type in _PLAIN_BLOCKS for block in blocks):
            return reply
        return replace(reply, native={"api": NAME, "turn": turn})

    def one_body(self, _: Reply) -> bytes:
        """The message, as it would arrive without streaming."""
        turn = [one.whole() for _, one in sorted(self._growing.items())]
        own = {"kind": "message", "role": "assistant", "content": turn, "usage": self._usage}
        return _encoder.encode(msgspec.structs.replace(self._message, **own))

    def _take(self, event: _Event, now_s: float) -> None:
        match event.kind:
            case "message_start" if event.message is not None:
                self._message = event.message
                self._usage.add(Usage.of(event.message.usage))
            case "content_block_start":
                self._begin(event.index, event.content_block, now_s)
            case "content_block_delta" if event.delta is not None:
                self._grow(event.index, event.delta, now_s)
            case "message_delta":
                self._usage.add(Usage.of(event.usage))
                if event.delta is not None:
                    message = self._message
                    message.stop_reason = event.delta.stop_reason or message.stop_reason
                    message.stop_details = event.delta.stop_details
                    message.stop_sequence = event.delta.stop_sequence
            case "message_stop":
                self._said_stop = self.done = True

    def _begin(self, index: int, begin: msgspec.Raw, now_s: float) -> None:
        block = decoded(bytes(begin), _block_decoder, "message block")
        whole = decoded(bytes(begin), _object_decoder, "message block")
        if isinstance(block, Failure) or isinstance(whole, Failure):
            self._fail(next(one for one in (block, whole) if isinstance(one, Failure)))
        elif len(self._growing) >= MOST_TOOL_CALLS:
            self._fail(malformed(f"the stream has more than {MOST_TOOL_CALLS} blocks"))
        else:
            growing = self._growing[index] = _Growing(block, whole)
            for name in _GROWING & whole.keys():
                growing.pieces[name].append(getattr(block, name, None) or "")
            if block.type not in {"text", "thinking"} or block.text or block.thinking:
                self._note_token(now_s)

    def _grow(self, index: int, delta: _Delta, now_s: float) -> None:
        growing = self._growing.get(index)
        if growing is None:
            self._fail(malformed("the stream continues a block that it has not started"))
            return
        for name in _GROWING:
            if piece := getattr(delta, name):
                growing.pieces[name].append(piece)
                self._note_token(now_s)


_GROWING = frozenset(("text", "thinking", "signature", "partial_json"))


@dataclass(slots=True)
class _Growing:
    """A block in a stream: its beginning (decoded, and as received), and each field's pieces."""

    begin: _Block
    said: dict[str, Any]
    pieces: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def block(self, whole: Mapping[str, Any]) -> _Block:
        arguments = joined(self.pieces.get("partial_json", ()))
        return msgspec.structs.replace(
            self.begin,
            text=whole.get("text"),
            thinking=whole.get("thinking"),
            input=msgspec.Raw(arguments.encode()) if arguments else self.begin.input,
        )

    def whole(self) -> dict[str, Any]:
        """The block, as it would arrive without streaming."""
        said = dict(self.said)
        for name, pieces in self.pieces.items():
            if name == "partial_json":
                said["input"] = object_of(joined(pieces))
            else:
                said[name] = joined(pieces)
        return said


class _Block(msgspec.Struct):
    """A block of content. Blocks of unknown types are sent back in later turns but not read."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(Answer):
    """A whole answer, or the message with which a stream begins."""

    role: str | None = None
    content: msgspec.Raw = NOTHING
    stop_reason: str | None = None
    stop_details: msgspec.Raw = NOTHING
    stop_sequence: msgspec.Raw = NOTHING


class _Delta(msgspec.Struct):
    """The text or fields that an event adds to a block or to the message."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: msgspec.Raw = NOTHING
    stop_sequence: msgspec.Raw = NOTHING


class _Event(Answer):
    index: int = 0
    message: _Message | None = None
    content_block: msgspec.Raw = NOTHING
    delta: _Delta | None = None


_message_decoder = msgspec.json.Decoder(_Message)
_blocks_decoder = msgspec.json.Decoder(list[_Block])
_block_decoder = msgspec.json.Decoder(_Block)
_object_decoder = msgspec.json.Decoder(dict[str, Any])
_turn_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_event_decoder = msgspec.json.Decoder(_Event)
_encoder = msgspec.json.Encoder()
API = Anthropic()
