"""Gemini's generateContent: translates chat completions, and reads answers and streams.

A turn is a list of parts: texts, thoughts, images, function calls and their results. Calls do not
require an id: if the server sends none, the module adds one and removes it again before sending.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from urllib.parse import quote, urlsplit

import msgspec

from pytest_ultrapar.apis.answer_reading import (
    MOST_TOOL_CALLS,
    NOTHING,
    Answer,
    EventStream,
    Usage,
    broken_off,
    filtered,
    is_nothing,
    joined,
    malformed,
)
from pytest_ultrapar.apis.openai import OpenAi
from pytest_ultrapar.apis.reply import NATIVE, Message, Messages, Reply, ToolCall, body_text
from pytest_ultrapar.apis.server_json import EMPTY, convert_tolerantly, part_of
from pytest_ultrapar.apis.translation import OF_OPENAI, Function, Translator, object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ultrapar.apis.failure import Failure
    from pytest_ultrapar.apis.outcome import Allowance

NAME = "gemini"
CONTENT_PATH = "/v1beta/models/{model}:generateContent"
SDK_PATHS = tuple(
    f"/{version}/models/{{model}}:{verb}"
    for version in ("v1", "v1alpha", "v1beta")
    for verb in ("generateContent", "streamGenerateContent")
)
"""The version in an SDK's path is kept, because the available fields depend on it."""


class Gemini(OpenAi):
    """`api = "gemini"`. `registry.Api` explains each attribute and method."""

    path: ClassVar[str] = CONTENT_PATH
    base_url_hint: ClassVar[str] = ""
    # A stream is requested with a different address, not with a different body.
    streamed: ClassVar[Mapping[str, Any]] = {}
    has_state: ClassVar[bool] = True
    serves: ClassVar[Mapping[str, str]] = dict.fromkeys(SDK_PATHS, NAME)
    base_paths: ClassVar[str] = ""

    def flaw_of(self, base_url: str) -> str | None:
        """An error message if the URL already contains what the plugin would append; else None."""
        if "/v1" in urlsplit(base_url).path:
            return 'must be the address without "/v1beta" or anything after it'
        return None

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """The URL of the model."""
        model = quote(name.removeprefix("models/"), safe="")
        return base_url.rstrip("/") + path.replace("{model}", model)

    def headers(self, token: str) -> dict[str, str]:
        """The authentication header."""
        return {"x-goog-api-key": token}

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body, translated from a chat completion, without a model name."""
        return _encoder.encode(_request(messages, parameters))

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in a complete answer."""
        content = ContentStream()
        content.take(body, 0.0)
        content.end(0.0)
        return content.reply(lane, latency_s)

    def stream(self) -> ContentStream:
        """A new reader of one streamed answer."""
        return ContentStream()

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """Always None, because the API does not report its limits."""
        return None


_translate = Translator(
    NAME,
    OF_OPENAI
    | {"parallel_tool_calls": True, "user": None, "metadata": None, "service_tier": "auto"},
)
_SETTINGS = {"temperature": "temperature", "seed": "seed", "top_p": "topP", "top_k": "topK"}
_SETTINGS |= {"presence_penalty": "presencePenalty", "frequency_penalty": "frequencyPenalty"}
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_FOREIGN_PARTS = frozenset({"input_audio", "file", "refusal"})


def _request(messages: Messages, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _translate.parameters(given)
    settings: dict[str, Any] = {}
    if (most := _translate.bound(parameters)) is not None:
        settings["maxOutputTokens"] = most
    for name, own in _SETTINGS.items():
        if name in parameters:
            settings[own] = parameters.pop(name)
    if (stop := parameters.pop("stop", None)) is not None:
        settings["stopSequences"] = [stop] if isinstance(stop, str) else stop
    if (wanted := parameters.pop("response_format", None)) is not None:
        schema = _translate.schema(wanted)
        if wanted["type"] != "text":
            settings["responseMimeType"] = "application/json"
        if schema is not None:
            settings["responseJsonSchema"] = schema["schema"]
    called: dict[str, str] = {}
    made: dict[str, Callable[[Message, str], Any]] = {
        "user": _parts,
        "system": _parts,
        "late": _late,
    }
    made |= {"assistant": partial(_said, called=called), "tool": partial(_result, called=called)}
    system, turns = _translate.conversation(messages, made, field="parts", own="model")
    body: dict[str, Any] = {"contents": turns}
    if system:
        body["systemInstruction"] = {"parts": system}
    if (tools := parameters.pop("tools", None)) is not None:
        body["tools"] = _tools(tools)
    if (choice := parameters.pop("tool_choice", None)) is not None:
        body["toolConfig"] = {"functionCallingConfig": _calling(choice)}
    settings = parameters.pop("generationConfig", {}) | settings
    if settings:
        body["generationConfig"] = settings
    return body | parameters


def _tools(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    functions: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for tool in _translate.functions(tools):
        if isinstance(tool, Function):
            functions.append(tool.said("parametersJsonSchema"))
        else:
            others.append(tool)
    return [*([{"functionDeclarations": functions}] if functions else []), *others]


def _calling(choice: object) -> dict[str, Any]:
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case str(word) if word in _MODES:
            return {"mode": _MODES[word]}
    return _translate.refuse("this tool_choice")


def _late(message: Message, place: str) -> NoReturn:
    _translate.refuse(f"{place}.role {message.get('role')!r} (after the first turn)")


def _parts(message: Message, place: str) -> list[Mapping[str, Any]]:
    return [_part(part, where) for part, where in _translate.parts(message, place)]


def _part(part: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return {"text": part.get("text")}
    if kind == "image_url":
        image = _translate.image(part, place)
        if image.detail not in {None, "auto"}:
            _translate.refuse(f"{place}.image_url.detail")
        if image.media_type:
            return {"inlineData": {"mimeType": image.media_type, "data": image.content}}
        return {"fileData": {"fileUri": image.url}}
    if kind in _FOREIGN_PARTS:
        _translate.refuse(f"{place} of type {kind!r}")
    return part


def _result(message: Message, place: str, called: Mapping[str, str]) -> dict[str, Any]:
    call_id = _translate.called(message, place)
    if call_id not in called:
        _translate.refuse(f"{place}.tool_call_id {call_id!r} (no earlier call has this id)")
    parts = [part for part, _ in _translate.parts(message, place)]
    if any(part.get("type") != "text" for part in parts):
        _translate.refuse(f"{place}.content (a part is not text)")
    output = {"output": "".join(str(part.get("text")) for part in parts)}
    return {"functionResponse": {**_own_id(call_id), "name": called[call_id], "response": output}}


def _own_id(call_id: str) -> dict[str, str]:
    """The field with the id of a call; empty if this module made the id."""
    return {} if call_id.startswith(_OUR_ID) else {"id": call_id}


_OUR_ID = "ultrapar-"


def _said(message: Message, place: str, called: dict[str, str]) -> Sequence[Mapping[str, Any]]:
    """A turn of the model: its original parts if stored and unchanged, else text and calls."""
    calls: list[dict[str, Any]] = []
    for call_id, name, arguments in _translate.calls(message, place):
        called[call_id] = name
        call = {**_own_id(call_id), "name": name, "args": object_of(arguments)}
        calls.append({"functionCall": call})
    text = _translate.said(message, place)
    match message.get(NATIVE):
        case {"api": str(api), "turn": list(turn)} if api == NAME:
            used = [
                {"functionCall": {"args": {}, **part["functionCall"]}}
                for part in turn
                if "functionCall" in part
            ]
            whole = "".join(part.get("text") or "" for part in turn if not part.get("thought"))
            if used == calls and whole == text:
                return turn
    return [*([{"text": text}] if text or not calls else []), *calls]


_FINISH_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}


class ContentStream(EventStream["_Response"]):
    """The events of one answer that have arrived so far.

    Each event is itself an answer, with some of the whole answer's parts.

    Source: ai.google.dev, "Generating content", GenerateContentResponse.
    """

    def __init__(self) -> None:
        super().__init__(_response_decoder, "generateContent response")
        self._last = _Response()
        self._turn: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []
        self._stop_reason: str | None = None
        self._index: int | None = None

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        feedback = part_of(self._last.prompt_feedback, dict[str, Any]) or {}
        if reason := feedback.get("blockReason"):
            return filtered(str(reason))
        if self._index is None:
            return malformed("the answer has no candidate")
        failure = broken_off(self._stop_reason)
        if not self._stop_reason:
            failure = malformed("the answer is cut off: it has no finishReason")
        usage = Usage.of(self._last.usage_metadata, "usageMetadata")
        thought = usage.count("thoughtsTokenCount")
        turn = self._parts()
        parts = convert_tolerantly(turn, _parts_decoder)
        if parts is None:
            return malformed("a part of the answer cannot be read")
        calls = [part.function_call for part in parts if part.function_call is not None]
        tokens_out = usage.count("candidatesTokenCount")
        tokens_in = usage.count("promptTokenCount")
        if tokens_in is not None:
            tokens_in += usage.count("toolUsePromptTokenCount") or 0
        if thought is not None:
            tokens_out = (tokens_out or 0) + thought
        finish_reason = _FINISH_REASONS.get(self._stop_reason or "", self._stop_reason)
        is_plain = all(part.keys() <= {"text"} or part.keys() <= {"functionCall"} for part in turn)
        reply = Reply(
            text="".join(part.text or "" for part in parts if not part.thought),
            reasoning="".join(part.text or "" for part in parts if part.thought) or None,
            tool_calls=tuple(
                ToolCall(
                    call.id or f"{_OUR_ID}{number}",
                    call.name or "",
                    _encoder.encode(call.args or {}).decode(),
                )
                for number, call in enumerate(calls)
            ),
            finish_reason="tool_calls" if calls and finish_reason == "stop" else finish_reason,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            lane=lane,
            latency_s=latency_s,
            reasoning_tokens=thought,
            id=part_of(self._last.response_id, str, "responseId"),
            model=part_of(self._last.model_version, str, "modelVersion"),
            cached_tokens=usage.count("cachedContentTokenCount"),
            stop_reason=self._stop_reason,
            native=None if is_plain else {"api": NAME, "turn": turn},
        )
        return reply if failure is None else replace(failure, came=reply)

    def _parts(self) -> list[dict[str, Any]]:
        return [
            {**part, "text": joined(pieces)} if isinstance(part.get("text"), str) else part
            for part, pieces in zip(self._turn, self._texts, strict=True)
        ]

    def one_body(self, _: Reply) -> bytes:
        """The answer, as it would arrive without streaming."""
        said = {"content": {"parts": self._parts(), "role": "model"}, "index": 0}
        one = said | {"finishReason": self._stop_reason}
        return _encoder.encode(msgspec.structs.replace(self._last, candidates=[one]))

    def _take(self, event: _Response, now_s: float) -> None:
        for name, field in msgspec.structs.asdict(event).items():
            if isinstance(field, msgspec.Raw) and not is_nothing(field):
                setattr(self._last, name, field)
        candidates = event.candidates or ()
        if self._index is None:
            self._index = min((one.index or 0 for one in candidates), default=None)
        for candidate in candidates:
            if (candidate.index or 0) != self._index:
                continue
            if (reason := bytes(candidate.finish_reason)) not in EMPTY:
                # A reason that is not a string is treated as an unknown word.
                word = part_of(reason, str, "candidates.finishReason")
                self._stop_reason = body_text(reason) if word is None else word
            for part in (candidate.content or _Content()).parts or ():
                self._add(part)
                self._note_token(now_s)

    def _add(self, part: dict[str, Any]) -> None:
        """Add a part to the turn; pieces of one text are joined."""
        last = self._turn[-1] if self._turn else {}
        text = str(part.get("text") or "")
        if part.keys() == last.keys() <= _TEXT and last.get("thought") == part.get("thought"):
            self._texts[-1].append(text)
            return
        if len(self._turn) >= MOST_TOOL_CALLS:
            self._fail(malformed(f"the answer has more than {MOST_TOOL_CALLS} parts"))
            return
        self._turn.append(part)
        self._texts.append([text])


_TEXT = {"text", "thought"}


class _Call(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: dict[str, Any] | None = None


class _Part(msgspec.Struct, rename="camel"):
    """A part of a turn. Parts of unknown kinds are sent back in later turns but not read."""

    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[dict[str, Any]] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    """One of the alternative answers to a request; `llm.chat()` requests only one."""

    index: int | None = None
    content: _Content | None = None
    finish_reason: msgspec.Raw = NOTHING


class _Response(Answer, rename="camel"):
    """A complete answer, or an event of a stream."""

    candidates: list[_Candidate] | None = None
    prompt_feedback: msgspec.Raw = NOTHING
    usage_metadata: msgspec.Raw = NOTHING
    response_id: msgspec.Raw = NOTHING
    model_version: msgspec.Raw = NOTHING


_response_decoder = msgspec.json.Decoder(_Response)
_parts_decoder = msgspec.json.Decoder(list[_Part])
_encoder = msgspec.json.Encoder()
API = Gemini()
