"""Gemini's `generateContent` and `streamGenerateContent`.

Source: Gemini's API reference and the types of its official Python client `google-genai`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from pytest_ultrapar.apis.gateway_errors import gemini_error
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.api_error import refuse, refuse_field
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request, arguments_of
from pytest_ultrapar.simulator.stream import TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire.conversation import chosen, messages_of

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.api_error import ApiError
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.persona import PersonaReply
    from pytest_ultrapar.simulator.stream import Piece


class _Content(msgspec.Struct):
    parts: list[dict[str, Any]] | None = None
    role: Literal["user", "model", "function"] | None = None


class _Declaration(msgspec.Struct, rename="camel"):
    name: str
    parameters: Any = None
    parameters_json_schema: Any = None


class _Tool(msgspec.Struct, rename="camel"):
    function_declarations: list[_Declaration] | None = None


class _CallingConfig(msgspec.Struct, rename="camel"):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class _ToolConfig(msgspec.Struct, rename="camel"):
    function_calling_config: _CallingConfig | None = None


class _Config(msgspec.Struct, rename="camel"):
    candidate_count: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, object] | None = None
    response_json_schema: dict[str, object] | None = None
    response_logprobs: bool | None = None


class _WireRequest(msgspec.Struct, rename="camel"):
    contents: list[_Content]
    system_instruction: _Content | None = None
    tools: list[_Tool] | None = None
    tool_config: _ToolConfig | None = None
    generation_config: _Config | None = None


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode
_FINISH_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}
_STREAM = ":streamGenerateContent"


class GenerateContent:
    """Implements `wire.resource.Resource` for this API."""

    key_header: ClassVar[bytes] = b"x-goog-api-key"
    overloaded: ClassVar[int] = 503

    def refusal(self, error: ApiError) -> Whole:
        """Write the document `{"error": {"code", "message", "status", "details"}}`.

        The delay before a retry is in the details, not in a header.
        """
        more: dict[str, object] = {}
        if error.retry_after_s is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            more["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after_s:.9g}s"}]
        return Whole(gemini_error(error.status, error.message, **more), error.status)

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """Read a request, which must have `contents`; the system instruction comes first."""
        assert name is not None, "the model is in the path"
        fields = _decode(body)
        wire = msgspec.convert(fields, _WireRequest)
        if not wire.contents:
            refuse("contents is not specified")
        config = wire.generation_config or _Config()
        if config.response_logprobs:
            refuse_field("responseLogprobs")
        return Request(
            name,
            messages_of(fields),
            config.seed,
            scope["path"].endswith(_STREAM),
            forced_tool=_forced_tool(wire),
            schema=_schema(config),
            max_tokens=config.max_output_tokens,
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """Write a response with its only candidate."""
        (reply,) = completion.replies
        return _response(request, completion, _parts(reply), reply)

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Write the chunks of the response. They are events, even without `?alt=sse`."""
        (reply,) = completion.replies
        texts = cut(reply.content, TEXT_PIECES)
        chunks: list[list[dict[str, object]]] = [[{"text": text}] for text in texts] or [[]]
        chunks[-1] += [part for part in _parts(reply) if "functionCall" in part]
        chunks[-1] = chunks[-1] or [{"text": ""}]
        documents = [_response(request, completion, parts, None) for parts in chunks[:-1]]
        documents.append(_response(request, completion, chunks[-1], reply))
        return spread([as_event(document) for document in documents])


RESOURCE = GenerateContent()


def _forced_tool(wire: _WireRequest) -> OfferedFunction | None:
    config = None if wire.tool_config is None else wire.tool_config.function_calling_config
    if config is None or (config.mode or "").upper() != "ANY":
        return None
    allowed = config.allowed_function_names
    offered = (
        OfferedFunction(one.name, one.parameters_json_schema or one.parameters)
        for tool in wire.tools or ()
        for one in tool.function_declarations or ()
        if not allowed or one.name in allowed
    )
    return chosen(offered, None)


def _schema(config: _Config) -> dict[str, object] | None:
    if config.response_json_schema is not None:
        return config.response_json_schema
    if config.response_schema is not None:
        return config.response_schema
    return ANY_OBJECT if config.response_mime_type == "application/json" else None


def _response(
    request: Request,
    completion: Completion,
    parts: list[dict[str, object]],
    ended: PersonaReply | None,
) -> bytes:
    candidate: dict[str, object] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if ended is not None:
        candidate["finishReason"] = _FINISH_REASONS[ended.finish_reason]
    n_in, n_out = completion.usage.n_in, completion.usage.n_out
    return _encode(
        {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": n_in,
                "candidatesTokenCount": n_out,
                "totalTokenCount": n_in + n_out,
                "cachedContentTokenCount": 0,
            },
            "modelVersion": request.api_name,
            "responseId": completion.name,
        }
    )


def _parts(reply: PersonaReply) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    if reply.content or not reply.tool_calls:
        parts.append({"text": reply.content})
    for call in reply.tool_calls:
        said = {"id": call.call_id, "name": call.name, "args": arguments_of(call)}
        parts.append({"functionCall": said})
    return parts
