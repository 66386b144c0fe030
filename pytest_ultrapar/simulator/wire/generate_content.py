"""Gemini's `generateContent` and `streamGenerateContent`.

Source: Gemini's API reference and the types of its official Python client `google-genai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request, arguments_of
from pytest_ultrapar.simulator.persona import ChatMessage, digests
from pytest_ultrapar.simulator.stream import TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import gemini

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.persona import PersonaReply
    from pytest_ultrapar.simulator.stream import Piece


class _Call(msgspec.Struct):
    name: str
    args: msgspec.Raw = msgspec.Raw()
    id: str = ""


class _Result(msgspec.Struct):
    name: str
    response: msgspec.Raw = msgspec.Raw()
    id: str = ""


class _Part(msgspec.Struct, rename="camel"):
    text: str = ""
    thought: bool = False
    inline_data: msgspec.Raw = msgspec.Raw()
    file_data: msgspec.Raw = msgspec.Raw()
    function_call: _Call | None = None
    function_response: _Result | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None
    role: str | None = None


class _Declaration(msgspec.Struct, rename="camel"):
    name: str
    parameters: dict[str, object] | None = None
    parameters_json_schema: dict[str, object] | None = None


class _Tool(msgspec.Struct, rename="camel"):
    function_declarations: list[_Declaration] | None = None


class _CallingConfig(msgspec.Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class _ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: _CallingConfig | None = None


class _Config(msgspec.Struct, rename="camel"):
    candidate_count: Annotated[int, msgspec.Meta(ge=1, le=8)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, object] | None = None
    response_json_schema: dict[str, object] | None = None
    response_logprobs: bool | None = None


class _WireRequest(msgspec.Struct, rename="camel"):
    contents: list[_Content] | _Content
    system_instruction: _Content | None = None
    tools: list[_Tool] | None = None
    tool_config: _ToolConfig | None = None
    generation_config: _Config | None = None


_decoder = msgspec.json.Decoder(_WireRequest)
_encode = msgspec.json.encode
_FINISH_REASONS = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
}
_ROLES = {None: "user", "user": "user", "model": "assistant", "function": "user"}
_STREAM = ":streamGenerateContent"


class GenerateContent:
    """See `wire.resource.Resource`."""

    api = gemini.API

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request | ApiError:
        """A request with at least one content, the system's instruction before it."""
        assert name is not None, "the model is in the path"
        try:
            wire = _decoder.decode(body)
        except UNREADABLE as error:
            return ApiError.bad_request(f"The body is no request for content: {error}")
        contents = wire.contents if isinstance(wire.contents, list) else [wire.contents]
        if not contents:
            return ApiError.bad_request("contents is not specified")
        messages: list[ChatMessage] = []
        if wire.system_instruction is not None:
            messages += _messages(wire.system_instruction, "system")
        for content in contents:
            if content.role not in _ROLES:
                said = f"Please use a valid role: user, model. (got {content.role!r})"
                return ApiError.bad_request(said)
            messages += _messages(content, _ROLES[content.role])
        config = wire.generation_config or _Config()
        if config.response_logprobs:
            return ApiError.unsupported("responseLogprobs")
        forced = _forced_tool(wire)
        try:
            schema = _schema(config)
        except RecursionError:
            return ApiError.bad_request("The response schema is nested too deep")
        if isinstance(forced, ApiError):
            return forced
        return Request(
            name,
            messages,
            config.seed,
            scope["path"].endswith(_STREAM),
            forced_tool=forced,
            schema=schema,
            n=config.candidate_count or 1,
            max_tokens=config.max_output_tokens,
            stop=[text for text in config.stop_sequences or () if text],
            details=b"sse" in parse_qs(scope["query_string"]).get(b"alt", []),
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """A response with its candidates."""
        candidates = [
            _candidate(index, _parts(reply), reply)
            for index, reply in enumerate(completion.replies)
        ]
        return _encode(_response(request, completion, candidates))

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Responses that add up to it, as events, or as one list where no events are asked for."""
        chunks = []
        for index, reply in enumerate(completion.replies):
            texts = cut(reply.content, TEXT_PIECES)
            chunks += [[_candidate(index, [{"text": text}], None)] for text in texts[:-1]]
            last: list[dict[str, object]] = [{"text": text} for text in texts[-1:]]
            last += [part for part in _parts(reply) if "functionCall" in part]
            chunks.append([_candidate(index, last or [{"text": ""}], reply)])
        documents = [_encode(_response(request, completion, chunk)) for chunk in chunks]
        if request.details:
            return spread([as_event(document) for document in documents])
        commas = [b"[", *[b",\n"] * (len(documents) - 1)]
        events = [comma + document for comma, document in zip(commas, documents, strict=True)]
        events[-1] += b"]"
        return spread(events)


RESOURCE = GenerateContent


def _messages(content: _Content, role: str) -> Iterator[ChatMessage]:
    """What a content says: results of functions are messages of their own, before its text."""
    parts = content.parts or []
    for part in parts:
        if (result := part.function_response) is not None:
            text = bytes(result.response).decode()
            call_id = result.id or None
            yield ChatMessage("tool", text, name=result.name, tool_call_id=call_id)
    own = [part for part in parts if part.function_response is None]
    if own or not parts:
        yield ChatMessage(
            role,
            "".join(part.text for part in own if not part.thought),
            tool_calls=tuple(
                ToolCall(call.id, call.name, bytes(call.args).decode())
                for part in own
                if (call := part.function_call) is not None
            ),
            attachments=digests(raw for p in own for raw in (p.inline_data, p.file_data)),
        )


def _forced_tool(wire: _WireRequest) -> OfferedFunction | ApiError | None:
    config = None if wire.tool_config is None else wire.tool_config.function_calling_config
    if config is None or (config.mode or "").upper() != "ANY":
        return None
    allowed = config.allowed_function_names
    for tool in wire.tools or ():
        for one in tool.function_declarations or ():
            if allowed and one.name not in allowed:
                continue
            schema = one.parameters_json_schema
            if schema is None and one.parameters is not None:
                schema = json_schema_of(one.parameters)
            return OfferedFunction(one.name, msgspec.Raw(_encode(schema) if schema else b""))
    return ApiError.bad_request("function_calling_config asks for a function that is not declared")


def _schema(config: _Config) -> dict[str, object] | None:
    if config.response_json_schema is not None:
        return config.response_json_schema
    if config.response_schema is not None:
        return json_schema_of(config.response_schema)
    return ANY_OBJECT if config.response_mime_type == "application/json" else None


_INNER = {"items", "additionalProperties"}
_INNER_LISTS = {"anyOf"}
_INNER_OBJECTS = {"properties", "defs", "$defs"}


def json_schema_of(schema: Mapping[str, Any]) -> dict[str, object]:
    """Gemini's own form of a schema as JSON Schema has it.

    Its types are upper-case, what may be null says so apart, counts come as texts since they are
    of 64 bits, and references have no `$`.
    """
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in _INNER and isinstance(value, dict):
            found[key] = json_schema_of(value)
        elif key in _INNER_LISTS and isinstance(value, list):
            found[key] = [json_schema_of(one) if isinstance(one, dict) else one for one in value]
        elif key in _INNER_OBJECTS and isinstance(value, dict):
            found["$defs" if key == "defs" else key] = {
                name: json_schema_of(one) if isinstance(one, dict) else one
                for name, one in value.items()
            }
        elif key == "type" and isinstance(value, str):
            if value != "TYPE_UNSPECIFIED":
                found[key] = value.lower()
        elif key == "ref" and isinstance(value, str):
            found["$ref"] = value.replace("#/defs/", "#/$defs/")
        elif key[:3] in {"min", "max"} and isinstance(value, str) and value.isdecimal():
            found[key] = int(value)
        elif key != "nullable":
            found[key] = value
    if schema.get("nullable") is True:
        return {"anyOf": [found, {"type": "null"}]}
    return found


def _usage(n_in: int, n_out: int) -> dict[str, object]:
    return {
        "promptTokenCount": n_in,
        "candidatesTokenCount": n_out,
        "totalTokenCount": n_in + n_out,
        "cachedContentTokenCount": 0,
    }


def _response(
    request: Request, completion: Completion, candidates: list[dict[str, object]]
) -> dict[str, object]:
    return {
        "candidates": candidates,
        "usageMetadata": _usage(completion.usage.n_in, completion.usage.n_out),
        "modelVersion": request.api_name,
        "responseId": completion.name,
    }


def _candidate(
    index: int, parts: list[dict[str, object]], reply: PersonaReply | None
) -> dict[str, object]:
    candidate: dict[str, object] = {"content": {"parts": parts, "role": "model"}, "index": index}
    if reply is not None:
        candidate["finishReason"] = _FINISH_REASONS[reply.finish_reason]
    return candidate


def _parts(reply: PersonaReply) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    if reply.content or not reply.tool_calls:
        parts.append({"text": reply.content})
    for call in reply.tool_calls or ():
        said = {"id": call.call_id, "name": call.name, "args": arguments_of(call)}
        parts.append({"functionCall": said})
    return parts
