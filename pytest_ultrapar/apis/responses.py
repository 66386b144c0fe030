"""OpenAI's Responses API: translate chat completions to its format, and read its answers.

A conversation is a list of items: messages, calls, results of calls, and reasoning. The provider
stores nothing, so every request contains the whole conversation. Reasoning arrives encrypted, so
that it can be sent back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pytest_ultrapar.apis.answer_reading import (
    CALL_WITHOUT_ID,
    NOTHING,
    Answer,
    EventStream,
    Usage,
    broken_off,
    decoded,
    error_in,
    is_nothing,
    joined,
    malformed,
)
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import RESPONSES_PATH, OpenAi
from pytest_ultrapar.apis.reply import NATIVE, Message, Messages, Reply, ToolCall, body_text
from pytest_ultrapar.apis.server_json import convert_tolerantly, part_of
from pytest_ultrapar.apis.translation import NO_COUNTERPART, Function, Translator, of_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "openai-responses"


class Responses(OpenAi):
    """`api = "openai-responses"`: a second resource on servers that also serve chat completions."""

    path: ClassVar[str] = RESPONSES_PATH
    streamed: ClassVar[Mapping[str, Any]] = {"stream": True}
    has_state: ClassVar[bool] = True
    least_tokens: ClassVar[int] = 16
    """The smallest `max_output_tokens` that OpenAI accepts; `ultrapar check` uses it."""

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body, translated from the format of chat completions."""
        return _encoder.encode(_request(name, messages, parameters))

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in a 200 response, or the reason why it cannot be used."""
        response = decoded(body, _response_decoder, "response")
        if isinstance(response, Failure):
            return response
        status, failure = response.status, error_in(response, body)
        if failure is None and status in {"queued", "in_progress"}:
            failure = malformed(f"the response is not complete: its status is {status!r}")
        output = b"[]" if is_nothing(response.output) else bytes(response.output)
        turn = decoded(output, _turn_decoder, "response")
        if isinstance(turn, Failure):
            return failure or turn
        if not (turn or status or failure):
            return malformed("the response has no item in its output, not even an empty message")
        # Ignore items of unknown kinds.
        items = convert_tolerantly(
            [one for one in turn if one.get("type") in _KNOWN_ITEMS], _items_decoder
        )
        if items is None:
            return failure or malformed("an item of the response cannot be read")
        reply = _reply(response, items, lane, latency_s)
        if failure is not None:
            return replace(failure, came=reply.came if isinstance(reply, Failure) else reply)
        if isinstance(reply, Failure) or len(turn) == sum(item.is_plain for item in items):
            return reply
        # The provider does not store reasoning. It can be sent back only if it is encrypted.
        kept = [
            one for one in turn if one.get("type") != "reasoning" or one.get("encrypted_content")
        ]
        return replace(reply, native={"api": NAME, "turn": kept}) if kept else reply

    def stream(self) -> ResponseStream:
        """A new reader of one streamed answer."""
        return ResponseStream()


_translate = Translator(
    NAME,
    NO_COUNTERPART | {"seed": None, "stop": None, "presence_penalty": 0, "frequency_penalty": 0},
)
_OF_THE_PROVIDER = ("previous_response_id", "conversation", "background")
_FOREIGN_PARTS = frozenset({"input_audio"})
_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


def _request(name: str, messages: Messages, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _translate.parameters(given)
    for one in _OF_THE_PROVIDER:
        if parameters.get(one):
            raise TypeError(
                f"llm.chat() does not support {one!r}: it always sends the whole conversation and "
                "waits for the answer; to use the provider's state, use the provider's SDK"
            )
    items = [item for turn in _translate.turns(messages) for item in _items(*turn)]
    body: dict[str, Any] = {"model": name, "input": items, "store": False}
    if (most := _translate.bound(parameters)) is not None:
        body["max_output_tokens"] = most
    if (tools := parameters.pop("tools", None)) is not None:
        body["tools"] = [_tool(tool) for tool in _translate.functions(tools)]
    match parameters.get("tool_choice"):
        case {"type": "function", "function": {"name": str(function)}}:
            parameters["tool_choice"] = {"type": "function", "name": function}
        case {"type": "allowed_tools", "allowed_tools": _} | {"custom": _}:
            _translate.refuse("this tool_choice")
    include = list(parameters.pop("include", ()))
    if parameters.pop("logprobs", False):
        include.append(_LOGPROBS)
    effort = parameters.pop("reasoning_effort", None)
    if effort is not None:
        body["reasoning"] = {**parameters.pop("reasoning", {}), "effort": effort}
    # Models without reasoning refuse this value.
    if effort is not None or "reasoning" in parameters:
        include.append(_ENCRYPTED)
    if include:
        body["include"] = list(dict.fromkeys(include))
    text = _text_settings(parameters)
    if text:
        body["text"] = {**parameters.pop("text", {}), **text}
    return body | parameters


def _text_settings(parameters: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (verbosity := parameters.pop("verbosity", None)) is not None:
        found["verbosity"] = verbosity
    if (wanted := parameters.pop("response_format", None)) is not None:
        schema = _translate.schema(wanted)
        found["format"] = {"type": wanted["type"], **(schema or {})}
    return found


def _tool(tool: Mapping[str, Any] | Function) -> Mapping[str, Any]:
    if not isinstance(tool, Function):
        return tool
    # By default, the Responses API is strict and chat completions are not.
    return {"type": "function", **tool.said("parameters"), "strict": bool(tool.strict)}


def _items(role: str, message: Message, place: str) -> Sequence[Mapping[str, Any]]:
    if role == "assistant":
        return _said(message, place)
    content = _translate.content(message, place, _part)
    if role == "tool":
        call_id = _translate.called(message, place)
        return [{"type": "function_call_output", "call_id": call_id, "output": content}]
    return [{"role": role, "content": content}]


def _part(part: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    match part:
        case {"type": "text", **more}:
            return {"type": "input_text", **more}
        case {"type": "image_url"}:
            image = _translate.image(part, place)
            return {"type": "input_image", "image_url": image.url, "detail": image.detail or "auto"}
        case {"type": "file", "file": Mapping() as file}:
            return {"type": "input_file", **file}
        case {"type": kind} if kind in _FOREIGN_PARTS:
            _translate.refuse(f"{place} of type {kind!r}")
    return part


def _said(message: Message, place: str) -> Sequence[Mapping[str, Any]]:
    """The items of a turn by the model.

    They are the original items if the message still has their text and calls. Otherwise they are
    new items, made from the text and calls of the message.
    """
    calls = [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in _translate.calls(message, place)
    ]
    text = _translate.said(message, place)
    match message.get(NATIVE):
        case {"api": str(api), "turn": list(turn)} if api == NAME:
            used = [
                {name: one.get(name) for name in _CALL} for one in of_kind(turn, "function_call")
            ]
            said = [part for one in of_kind(turn, "message") for part in one.get("content") or ()]
            whole = "".join(part.get("text") or part.get("refusal") or "" for part in said)
            if used == calls and whole == text:
                return turn
    if text or not calls:
        return [{"role": "assistant", "content": text}, *calls]
    return calls


_CALL = ("type", "call_id", "name", "arguments")


_KNOWN_ITEMS = ("message", "function_call", "reasoning")


def _reply(
    response: _Response, items: Sequence[_Item], lane: str, latency_s: float
) -> Reply | Failure:
    stop_reason = response.status
    if response.status == "incomplete":
        details = part_of(response.incomplete_details, dict[str, Any]) or {}
        stop_reason = str(details.get("reason") or stop_reason)
    failure = broken_off(stop_reason)
    usage = Usage.of(response.usage)
    calls = tuple(
        ToolCall(item.call_id or "", item.name or "", item.arguments or "")
        for item in items
        if item.type == "function_call"
    )
    if failure is None and not all(call.call_id for call in calls):
        failure = malformed(CALL_WITHOUT_ID)
    if response.status == "incomplete":
        finish_reason = "length"
    else:
        finish_reason = "tool_calls" if calls else "stop"
    said = [part for item in items if item.type == "message" for part in item.content or ()]
    refusal = "".join(part.refusal or "" for part in said)
    reply = Reply(
        text="".join(part.text or "" for part in said) or refusal,
        # The reasoning itself if the model sends it, otherwise its summary.
        reasoning="\n".join(
            part.text
            for item in items
            if item.type == "reasoning"
            for part in item.content or item.summary or ()
            if part.text
        )
        or None,
        tool_calls=calls,
        finish_reason=finish_reason,
        tokens_in=usage.count("input_tokens"),
        tokens_out=usage.count("output_tokens"),
        lane=lane,
        latency_s=latency_s,
        refusal=refusal or None,
        reasoning_tokens=usage.count("reasoning_tokens", "output_tokens_details"),
        id=part_of(response.id, str, "id"),
        model=part_of(response.model, str, "model"),
        cached_tokens=usage.count("cached_tokens", "input_tokens_details"),
        stop_reason=stop_reason,
    )
    return reply if failure is None else replace(failure, came=reply)


class ResponseStream(EventStream["_Event"]):
    """The events of one answer that have arrived so far.

    The last event contains the whole answer. The earlier events show when the parts of the answer
    arrived. If the last event has no output, they provide the content. Without a last event, the
    answer is incomplete, and the text that arrived is only for the record.

    Source: developers.openai.com, "Streaming events" in the section on Responses.
    """

    def __init__(self) -> None:
        super().__init__(_event_decoder, "response event")
        self._response = b""
        self._items: list[msgspec.Raw] = []
        self._text: list[str] = []

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        if self._response:
            return API.reply(self._response, lane, latency_s)
        part = _Part(joined(self._text))
        came = _reply(_Response(), [_Item("message", [part])], lane, latency_s)
        return self._cut_off(came if isinstance(came, Reply) else None)

    def one_body(self, _: Reply) -> bytes:
        """The response in the last event."""
        return self._response

    def _take(self, event: _Event, now_s: float) -> None:
        kind = event.kind or ""
        if kind.endswith(".delta"):
            self._note_token(now_s)
            if kind == "response.output_text.delta":
                self._text.append(part_of(event.delta, str) or "")
        elif kind == "response.output_item.done":
            self._items.append(event.item)
        elif kind in _ENDS:
            self._response = bytes(event.response)
            fields = part_of(event.response, dict[str, msgspec.Raw])
            if fields and self._items and not part_of(fields.get("output", NOTHING), list):
                # Some gateways omit the output here, because they have sent it in pieces.
                self._response = _encoder.encode(fields | {"output": self._items})
            self._response = joined([body_text(self._response)]).encode()
            self.done = True


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Part(msgspec.Struct):
    """A part of a message, of reasoning, or of a summary of reasoning."""

    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    """A message, a call or reasoning."""

    type: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    phase: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the text and calls of a reply contain everything that is in the item."""
        return self.type == "function_call" or (self.type == "message" and self.phase is None)


class _Response(Answer):
    """A complete answer."""

    status: str | None = None
    incomplete_details: msgspec.Raw = NOTHING
    output: msgspec.Raw = NOTHING


class _Event(Answer):
    response: msgspec.Raw = NOTHING
    delta: msgspec.Raw = NOTHING
    item: msgspec.Raw = NOTHING


_response_decoder = msgspec.json.Decoder(_Response)
_turn_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_items_decoder = msgspec.json.Decoder(list[_Item])
_event_decoder = msgspec.json.Decoder(_Event)
_encoder = msgspec.json.Encoder()
API = Responses()
