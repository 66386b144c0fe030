"""OpenAI's Responses.

Source: OpenAI's API reference and the types of its official Python client.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from pytest_ultrapar.apis.reply import ToolCall
from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import ANY_OBJECT, OfferedFunction, Request
from pytest_ultrapar.simulator.persona import ChatMessage, digests
from pytest_ultrapar.simulator.stream import ARGUMENT_PIECES, TEXT_PIECES, as_event, cut, spread
from pytest_ultrapar.simulator.wire import openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.stream import Piece
    from pytest_ultrapar.simulator.wire.resource import Hollow


class _Part(msgspec.Struct):
    text: str = ""
    image_url: msgspec.Raw = msgspec.Raw()
    file_data: msgspec.Raw = msgspec.Raw()
    file_url: msgspec.Raw = msgspec.Raw()
    input_audio: msgspec.Raw = msgspec.Raw()
    file_id: str | None = None


class _Item(msgspec.Struct):
    """An item of the input; what is of another kind, such as reasoning, says nothing here."""

    type: str = "message"
    role: str | None = None
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[_Part] | None = None
    id: str | None = None


class _Format(msgspec.Struct):
    type: str
    schema: dict[str, object] | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    parameters: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct):
    type: str
    name: str | None = None


class _WireRequest(msgspec.Struct):
    model: str | None = None
    input: str | list[_Item] = ""
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: msgspec.Raw = msgspec.Raw()
    background: bool | None = None
    text: _Text | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None


class _Details(msgspec.Struct):
    """What of a request its answer repeats, and where its conversation is kept.

    Attributes:
        given: All of the request's fields.
        turns: The conversation without its instructions, which hold for one answer alone.
    """

    key: str
    given: dict[str, Any]
    turns: list[ChatMessage]
    is_stored: bool


_decoder = msgspec.json.Decoder(_WireRequest)
_encode = msgspec.json.encode
_MOST_STORED = 10_000
_REPEATED: dict[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Fields that an answer repeats, with what they are where the request has none."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_LOGPROBS = "message.output_text.logprobs"
_NOT_FOUND = 404


class Responses:
    """See `wire.resource.Resource`; remembers the answers of a provider, each for its key."""

    api = openai.API

    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], list[ChatMessage]] = {}

    def read(self, body: bytes, *, name: str | None, key: str, scope: Scope) -> Request | ApiError:
        """A request with its whole conversation, that of the response before it included."""
        del scope
        try:
            wire = _decoder.decode(body)
            given = msgspec.json.decode(body)
            turns = list(_turns(wire.input))
        except UNREADABLE as error:
            return ApiError.bad_request(f"The body is no request for a response: {error}")
        except LookupError as error:
            return ApiError(_NOT_FOUND, str(error.args[0]), param="input")
        api_name = name or wire.model
        if not api_name:
            return ApiError.bad_request("`model` is missing", param="model")
        if wire.top_logprobs is not None or _LOGPROBS in (wire.include or ()):
            return ApiError.unsupported("top_logprobs")
        if wire.background:
            return ApiError.unsupported("background")
        if wire.conversation and bytes(wire.conversation) != b"null":
            return ApiError(_NOT_FOUND, "Conversation not found.", param="conversation")
        before: list[ChatMessage] | None = []
        if wire.previous_response_id is not None:
            before = self._stored.get((key, wire.previous_response_id))
        if before is None:
            said = f"Previous response with id {wire.previous_response_id!r} not found."
            code = "previous_response_not_found"
            return ApiError(_NOT_FOUND, said, code, "previous_response_id")
        turns = [*before, *turns]
        instructions = [ChatMessage("system", wire.instructions)] if wire.instructions else []
        if not turns and not instructions:
            return ApiError.bad_request("`input` is empty", param="input")
        forced = _forced_tool(wire)
        if isinstance(forced, ApiError):
            return forced
        wanted = None if wire.text is None else wire.text.format
        schema = None if wanted is None or wanted.type == "text" else wanted.schema
        if wanted is not None and wanted.type == "json_object":
            schema = ANY_OBJECT
        elif wanted is not None and wanted.type == "json_schema" and schema is None:
            said = "`text.format` of type `json_schema` needs `schema`"
            return ApiError.bad_request(said, param="text.format.schema")
        return Request(
            api_name,
            [*instructions, *turns],
            stream=bool(wire.stream),
            forced_tool=forced,
            schema=schema,
            max_tokens=wire.max_output_tokens,
            details=_Details(key, given, turns, wire.store is not False),
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """A response, remembered unless it must not be."""
        document, items = self._answer(request, completion)
        return _encode({**document, "output": items})

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Its events: the response without output, each item with its pieces, the whole of it."""
        document, items = self._answer(request, completion)
        begun = {**document, "status": "in_progress", "incomplete_details": None, "usage": None}
        named: list[tuple[str, dict[str, object]]] = [
            ("response.created", {"response": {**begun, "output": []}}),
            ("response.in_progress", {"response": {**begun, "output": []}}),
        ]
        for index, item in enumerate(items):
            parts = _message_events if item["type"] == "message" else _call_events
            named += [(name, {"output_index": index, **rest}) for name, rest in parts(item)]
        ended: dict[str, object] = {"response": {**document, "output": items}}
        named.append((f"response.{document['status']}", ended))
        return spread(
            [
                as_event(_encode({"type": name, "sequence_number": n, **fields}), name)
                for n, (name, fields) in enumerate(named)
            ]
        )

    def hollow(self, form: Hollow) -> bytes:
        """A response without items, or without any output."""
        document: dict[str, object] = {
            "id": "resp_0",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "status": "completed",
            "usage": _usage(1, 0),
        }
        if form != "no-message":
            document["output"] = [] if form == "empty-choices" else None
        return _encode(document)

    def _answer(
        self, request: Request, completion: Completion
    ) -> tuple[dict[str, object], list[dict[str, Any]]]:
        """The response without its output, and its output."""
        details: _Details = request.details
        (reply,) = completion.replies
        reason = _INCOMPLETE.get(reply.finish_reason)
        status = "completed" if reason is None else "incomplete"
        calls = reply.tool_calls or ()
        # The same conversation can be answered in several ways, as text or by a call.
        said = _encode((reply.content, calls))
        response_id = f"resp_{completion.name}{zlib.crc32(said):08x}"
        items: list[dict[str, Any]] = []
        if reply.content or not calls:
            text = {
                "type": "output_text",
                "text": reply.content,
                "annotations": [],
                "logprobs": [],
            }
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
        if details.is_stored:
            answer = ChatMessage("assistant", reply.content, tool_calls=tuple(calls))
            self._store((details.key, response_id), [*details.turns, answer])
        repeated = {
            name: usual if (given := details.given.get(name)) is None else given
            for name, usual in _REPEATED.items()
        }
        document = {
            "id": response_id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": request.api_name,
            **repeated,
            "usage": _usage(completion.usage.n_in, completion.usage.n_out),
        }
        return document, items

    def _store(self, place: tuple[str, str], turns: list[ChatMessage]) -> None:
        self._stored.pop(place, None)
        self._stored[place] = turns
        if len(self._stored) > _MOST_STORED:
            del self._stored[next(iter(self._stored))]


RESOURCE = Responses


def _turns(given: str | list[_Item]) -> Iterator[ChatMessage]:
    """The messages of an input.

    Raises:
        LookupError: It names a file or an item, and none are kept.
    """
    for item in [_Item(role="user", content=given)] if isinstance(given, str) else given:
        if item.type == "item_reference":
            msg = f"Item with id {item.id!r} not found."
            raise LookupError(msg)
        if item.type == "message":
            if item.content or item.role:
                text, attachments = _said(item.content)
                yield ChatMessage(item.role or "user", text, attachments=attachments)
        elif item.type == "function_call":
            call = ToolCall(item.call_id, item.name, item.arguments)
            yield ChatMessage("assistant", tool_calls=(call,))
        elif item.type == "function_call_output":
            text, attachments = _said(item.output)
            yield ChatMessage("tool", text, tool_call_id=item.call_id, attachments=attachments)


def _said(content: str | list[_Part] | None) -> tuple[str, tuple[str, ...]]:
    if isinstance(content, str):
        return content, ()
    parts = content or ()
    for part in parts:
        if part.file_id is not None:
            msg = f"No such File object: {part.file_id}"
            raise LookupError(msg)
    held = (raw for p in parts for raw in (p.image_url, p.file_data, p.file_url, p.input_audio))
    return "".join(part.text for part in parts), digests(held)


def _forced_tool(wire: _WireRequest) -> OfferedFunction | ApiError | None:
    choice = wire.tool_choice
    if choice is None or (isinstance(choice, str) and choice != "required"):
        return None
    if isinstance(choice, _Choice) and choice.type != "function":
        said = "`tool_choice` must name a function; the simulated provider has no tools of its own"
        return ApiError.bad_request(said, param="tool_choice")
    offered = [
        OfferedFunction(tool.name, tool.parameters)
        for tool in wire.tools or ()
        if tool.type == "function"
    ]
    return openai.chosen(offered, None if isinstance(choice, str) else choice.name)


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
    yield (
        "response.output_item.added",
        {"item": {**item, "status": "in_progress", "content": []}},
    )
    place = {"item_id": item["id"], "content_index": 0}
    empty = {**whole, "text": ""}
    yield "response.content_part.added", {**place, "part": empty}
    for text in cut(whole["text"], TEXT_PIECES):
        yield "response.output_text.delta", {**place, "delta": text, "logprobs": []}
    said = {"text": whole["text"], "logprobs": []}
    yield "response.output_text.done", {**place, **said}
    yield "response.content_part.done", {**place, "part": whole}
    yield "response.output_item.done", {"item": item}


def _call_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    yield (
        "response.output_item.added",
        {"item": {**item, "status": "in_progress", "arguments": ""}},
    )
    place = {"item_id": item["id"]}
    for text in cut(item["arguments"], ARGUMENT_PIECES):
        yield "response.function_call_arguments.delta", {**place, "delta": text}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", {**place, **whole}
    yield "response.output_item.done", {"item": item}
