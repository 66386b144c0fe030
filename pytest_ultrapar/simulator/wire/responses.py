"""OpenAI's Responses API, without stored responses.

Source: OpenAI's API reference and the types of its official Python client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.simulator.api_error import refuse, refuse_field
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request
from pytest_ultrapar.simulator.stream import ARGUMENT_PIECES, TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import openai
from pytest_ultrapar.simulator.wire.conversation import chosen, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.stream import Piece


class _Format(msgspec.Struct):
    type: str
    schema: dict[str, object] | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    parameters: Any = None


class _Choice(msgspec.Struct):
    type: str
    name: str | None = None


class _WireRequest(msgspec.Struct):
    model: str | None = None
    input: str | list[dict[str, Any]] = ""
    instructions: str | None = None
    stream: bool | None = None
    text: _Text | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    max_output_tokens: openai.MaxTokens | None = None
    include: list[str] | None = None


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode
_UNSUPPORTED = ("background", "conversation", "previous_response_id", "store", "top_logprobs")
_INCOMPLETE = {"length": "max_output_tokens"}
_LOGPROBS = "message.output_text.logprobs"


class Responses(openai.OpenAi):
    """Implements `wire.resource.Resource` for this API."""

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """Read a request with its whole conversation."""
        fields = _decode(body)
        wire = msgspec.convert(fields, _WireRequest)
        messages = messages_of(fields)
        for field in _UNSUPPORTED:
            if fields.get(field):
                refuse_field(field)
        if _LOGPROBS in (wire.include or ()):
            refuse_field("include")
        api_name = name or wire.model
        if not api_name:
            refuse("`model` is missing", param="model")
        if not messages:
            refuse("`input` is empty", param="input")
        wanted = None if wire.text is None else wire.text.format
        schema = None if wanted is None or wanted.type == "text" else wanted.schema
        if wanted is not None and wanted.type == "json_object":
            schema = ANY_OBJECT
        elif wanted is not None and wanted.type == "json_schema" and schema is None:
            said = "`text.format` of type `json_schema` needs `schema`"
            refuse(said, param="text.format.schema")
        return Request(
            api_name,
            messages,
            stream=bool(wire.stream),
            forced_tool=_forced_tool(wire),
            schema=schema,
            max_tokens=wire.max_output_tokens,
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """Write a response."""
        return _encode(_response(request, completion, _items(completion)))

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Write the events: a response without output, each item in pieces, the whole response."""
        items = _items(completion)
        document = _response(request, completion, items)
        begun = {**document, "status": "in_progress", "incomplete_details": None, "usage": None}
        named: list[tuple[str, dict[str, object]]] = [
            ("response.created", {"response": {**begun, "output": []}}),
            ("response.in_progress", {"response": {**begun, "output": []}}),
        ]
        for index, item in enumerate(items):
            parts = _message_events if item["type"] == "message" else _call_events
            named += [(name, {"output_index": index, **rest}) for name, rest in parts(item)]
        named.append((f"response.{document['status']}", {"response": document}))
        return spread(
            [
                as_event(_encode({"type": name, "sequence_number": n, **fields}), name)
                for n, (name, fields) in enumerate(named)
            ]
        )


RESOURCE = Responses()


def _forced_tool(wire: _WireRequest) -> OfferedFunction | None:
    choice = wire.tool_choice
    if choice is None or (isinstance(choice, str) and choice != "required"):
        return None
    if isinstance(choice, _Choice) and choice.type != "function":
        said = "`tool_choice` must name a function; the simulated provider has no built-in tools"
        refuse(said, param="tool_choice")
    offered = [
        OfferedFunction(tool.name, tool.parameters)
        for tool in wire.tools or ()
        if tool.type == "function"
    ]
    return chosen(offered, None if isinstance(choice, str) else choice.name)


def _response(
    request: Request, completion: Completion, items: list[dict[str, Any]]
) -> dict[str, object]:
    reason = _INCOMPLETE.get(completion.replies[0].finish_reason)
    return {
        "id": f"resp_{completion.name}",
        "object": "response",
        "created_at": 0,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": request.api_name,
        "output": items,
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(completion.usage.n_in, completion.usage.n_out),
    }


def _items(completion: Completion) -> list[dict[str, Any]]:
    (reply,) = completion.replies
    status = "incomplete" if reply.finish_reason in _INCOMPLETE else "completed"
    calls = reply.tool_calls
    items: list[dict[str, Any]] = []
    if reply.content or not calls:
        text = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{completion.name}",
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [text],
            }
        )
    items += [
        {
            "id": f"fc_{completion.name}_{index}",
            "type": "function_call",
            "status": status,
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for index, call in enumerate(calls)
    ]
    return items


def _usage(n_in: int, n_out: int) -> dict[str, object]:
    return {
        "input_tokens": n_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": n_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": n_in + n_out,
    }


def _message_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    (whole,) = item["content"]
    begun = {**item, "status": "in_progress", "content": []}
    yield "response.output_item.added", {"item": begun}
    place = {"item_id": item["id"], "content_index": 0}
    yield "response.content_part.added", {**place, "part": {**whole, "text": ""}}
    for text in cut(whole["text"], TEXT_PIECES):
        yield "response.output_text.delta", {**place, "delta": text, "logprobs": []}
    yield "response.output_text.done", {**place, "text": whole["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": whole}
    yield "response.output_item.done", {"item": item}


def _call_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    begun = {**item, "status": "in_progress", "arguments": ""}
    yield "response.output_item.added", {"item": begun}
    place = {"item_id": item["id"]}
    for text in cut(item["arguments"], ARGUMENT_PIECES):
        yield "response.function_call_arguments.delta", {**place, "delta": text}
    said = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", {**place, **said}
    yield "response.output_item.done", {"item": item}
