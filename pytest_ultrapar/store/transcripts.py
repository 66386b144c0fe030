"""Read messages from exchanges: the new messages of each request, followed by its answer.

Requests are read through the fields in which APIs put messages. If an answer is a whole chat
completion, all fields of its messages are kept. All other answers, and all streams, are read with
the reader for their own API.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.apis.as_chat import conversation_of
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import reader_named
from pytest_ultrapar.apis.server_json import has_too_many_objects, repaired
from pytest_ultrapar.apis.server_sent_events import EventReader
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.exchanges import new_messages, said
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.store.string_parts import PARTS_NAME, read_part
from pytest_ultrapar.system.files import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.apis.reply import Reply
    from pytest_ultrapar.exchanges import Said
    from pytest_ultrapar.records import EpisodeEnded, Exchange

Fields = dict[str, Any]
_OK = 200
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_PARAMETERS = frozenset(
    {"model", "stream", "stream_options", "messages", "system", "input", "instructions", "prompt"}
    | {"contents", "systemInstruction"}
)
_OF_MESSAGES = frozenset(
    {"role", "content", "parts", "tool_calls", "name", "tool_call_id", "refusal"}
    | {"reasoning_content", "reasoning"}
)
_PLAIN = frozenset({"role", "content"})
_MOST_SHOWN = 64 * 1024
"""How many bytes of an unreadable body are shown."""
_LOOKED_AT = 1024
"""How many bytes of a part are checked for spaces and backslashes: base64 contains neither, but
other text does."""


def conversation(run_dir: Path, episode: EpisodeEnded) -> Sequence[TurnMessage]:
    """The messages of an episode, from exchanges or stored messages.

    If a part is not text, or cannot be read, its name is shown instead of its content.

    Args:
        run_dir: The directory of the episode's run.
        episode: The episode's record in the journal.
    """
    if not episode.exchanges:
        return episode.messages
    return turn_messages(episode.exchanges, partial(_shown_part, run_dir))


def _shown_part(run_dir: Path, name: str) -> bytes:
    try:
        content = read_part(run_dir, name)
    except ResultsError:
        return f"({PARTS_NAME}/{name} can no longer be read)".encode()
    begin = content[:_LOOKED_AT]
    if begin.isascii() and b" " not in begin and b"\\" not in begin:
        return f"{PARTS_NAME}/{name}".encode()
    return content


def turn_messages(exchanges: Sequence[Exchange], part: Callable[[str], bytes]) -> list[TurnMessage]:
    """The conversations of an episode, with its model and with each role, in the order of turns.

    Messages that a request repeats from the previous request in its conversation are left out.

    Args:
        exchanges: The exchanges in the journal.
        part: Returns the content of a part by its name.
    """
    noted: list[TurnMessage] = []
    # By role: the messages of its previous request, and all messages so far.
    before: dict[str, list[Fields]] = {}
    heard: dict[str, list[TurnMessage]] = {}
    try:
        found = said(exchanges, part)
    except ValueError as error:
        # The checksum shows that the record is complete, so it comes from another version.
        return [TurnMessage(0, "", f"({error})")]
    for one in found:
        turn, role = one.exchange.turn, one.exchange.role
        request = _read(one.sent)
        asked = conversation_of(request) if isinstance(request, dict) else [_shown(one.sent)]
        earlier = heard.setdefault(role, [])
        new = new_messages(asked, before.get(role, ()), earlier, partial(_message, turn))
        before[role] = asked
        if one.exchange.status == _OK:
            new += _answers(one, request)
        earlier += new
        noted += (
            [msgspec.structs.replace(message, pool_role=role) for message in new] if role else new
        )
    return noted


def _read(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The content of a body; None if it cannot be read, or has too many objects."""
    if not body or has_too_many_objects(body):
        return None
    try:
        return _decode(body)
    except NOT_THAT_JSON:
        whole = repaired(body)
        return None if whole is None else _read(whole)


def _shown(body: bytes) -> Fields:
    text = body[:_MOST_SHOWN].decode("utf-8", "replace")
    return {"role": "user", "content": text}


def _message(turn: int, message: Fields, **more: Any) -> TurnMessage:  # noqa: ANN401 - fields
    content = message.get("content", message.get("parts"))
    role = str(message.get("role", message.get("type", "")))
    if message.keys() == _PLAIN:
        return TurnMessage(turn, role, _as_text(content), **more)
    calls = message.get("tool_calls") or None
    return TurnMessage(
        turn,
        role,
        _as_text(content),
        _calls(calls),
        name=_text(message.get("name")),
        tool_call_id=_text(message.get("tool_call_id")),
        tool_call_ids=_call_ids(calls),
        reasoning=_text(message.get("reasoning_content") or message.get("reasoning")),
        refusal=_text(message.get("refusal")),
        other=_other(message),
        **more,
    )


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "" if content is None else _encode(content).decode()


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    return None if value is None else _as_text(value)


def _calls(calls: object) -> str | None:
    if not isinstance(calls, list):
        return None
    named = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        arguments = _as_text(function.get("arguments"))
        named.append({"name": _as_text(function.get("name")), "arguments": arguments})
    return _encode(named).decode()


def _call_ids(calls: object) -> str | None:
    if not isinstance(calls, list):
        return None
    return _encode([call.get("id") if isinstance(call, dict) else None for call in calls]).decode()


def _other(message: Fields) -> str | None:
    more = {
        name: value
        for name, value in message.items()
        if name not in _OF_MESSAGES and value is not None and value != []
    }
    return _encode(more).decode() if more else None


# -- answers ---------------------------------------------------------------------------------------


def _answers(one: Said, request: object) -> Iterator[TurnMessage]:
    """Yield a message for each readable choice of an answer."""
    body = _end(one.came) if one.is_stream else _read(one.came)
    choices = body.get("choices") if isinstance(body, dict) else None
    facts: Fields = {"parameters": _parameters(request)}
    if isinstance(body, dict):
        facts["answer_id"] = _text(body.get("id"))
        facts["served_model"] = _text(body.get("model"))
        facts["usage"] = _text(body.get("usage"))
    if one.is_stream or not choices or not isinstance(choices, list):
        reply = _reply(one)
        if reply is not None:
            yield from _of_reply(one.exchange.turn, reply, facts)
        return
    for number, choice in enumerate(choices):
        if not isinstance(choice, dict):
            continue
        message = choice.get("message")
        if not isinstance(message, dict) or not message:
            message = {"content": choice.get("text")}
        said = _said_text(message.get("content")) or _text(message.get("refusal")) or ""
        yield _message(
            one.exchange.turn,
            {"role": "assistant", **message, "content": said},
            choice=number,
            finish_reason=_text(choice.get("finish_reason")),
            **facts,
        )


def _said_text(content: object) -> str:
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return _as_text(content)


def _parameters(request: object) -> str | None:
    if not isinstance(request, dict):
        return None
    given = {name: value for name, value in request.items() if name not in _NO_PARAMETERS}
    return _encode(given).decode() if given else None


def _reply(one: Said) -> Reply | None:
    """The reply as the API reads it; None if it cannot be read."""
    try:
        reader = reader_named(one.exchange.api)
        if one.is_stream:
            stream = reader.stream()
            stream.feed(one.came, 0.0)
            stream.end(0.0)
            found = stream.reply("", 0.0)
        else:
            found = reader.reply(one.came, "", 0.0)
    except Exception:  # noqa: BLE001 - an API package may be missing, or have another version
        return None
    return found.came if isinstance(found, Failure) else found


def _of_reply(turn: int, reply: Reply, facts: Fields) -> Iterator[TurnMessage]:
    for number, choice in enumerate(reply.choices):
        calls = choice.message.get("tool_calls")
        yield TurnMessage(
            turn,
            "assistant",
            choice.text,
            _calls(calls),
            tool_call_ids=_call_ids(calls),
            choice=number,
            finish_reason=choice.finish_reason,
            reasoning=choice.reasoning,
            refusal=choice.refusal,
            **facts,
        )


def _end(came: bytes) -> Fields | None:
    """The last event with token counts; if no event has any, the last event of the stream."""
    reader = EventReader()
    last = None
    for event in reversed([*reader.feed(came), *reader.end()]):
        said = _read(event)
        if isinstance(said, dict):
            if said.get("usage"):
                return said
            last = last or said
    return last
