"""Rewrite the messages in any API's requests as chat completions, for readers of transcripts.

This is the reverse of `translation`. The result is never sent, so unknown parts can stay unchanged.
Callers need not name the API, because each API uses different fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Fields = dict[str, Any]


def conversation_of(request: _Fields) -> list[_Fields]:
    """Return the messages in a request as chat completions, system messages first.

    Args:
        request: The body of a request to any API. For an unknown API the result is empty.
    """
    system = request.get("system") or request.get("instructions")
    system = system or request.get("systemInstruction")
    if isinstance(system, dict):
        found = [{**system, "role": "system"}]
    else:
        found = [] if system is None else [{"role": "system", "content": system}]
    for name in ("messages", "contents", "input", "prompt"):
        given = request.get(name)
        for one in given if isinstance(given, list) else [given]:
            if one is not None:
                found.append(one if isinstance(one, dict) else {"role": "user", "content": one})
    return as_chat(found)


def as_chat(items: Iterable[_Fields]) -> list[_Fields]:
    """Convert the messages or items in a request to chat completions.

    The reasoning, text and calls in one turn of the model become one message.

    Args:
        items: The request's messages or items, with any content.
    """
    said: list[_Fields] = []
    for item in items:
        for message in _messages(item):
            if said and _goes_on(said[-1], message):
                _add(said[-1], message)
            else:
                said.append(message)
    return said


def _goes_on(last: _Fields, message: _Fields) -> bool:
    """Whether a message continues the model's turn. Only the Responses API splits turns."""
    is_own = last.get("role") == message.get("role") == "assistant"
    return is_own and (message.get("content") is None or last.get("content") is None)


def _add(last: _Fields, more: _Fields) -> None:
    if more.get("content") is not None:
        last["content"] = more["content"]
    for name in ("tool_calls", "reasoning"):
        earlier, added = last.get(name), more.get(name)
        if added is not None:
            is_more = isinstance(added, str | list) and isinstance(earlier, type(added))
            last[name] = earlier + added if is_more else added


def _messages(item: _Fields) -> Iterator[_Fields]:
    content = item.get("content")
    match item.get("type"):
        case "function_call":
            yield _turn(None, [_call(item.get("call_id"), item.get("name"), item.get("arguments"))])
            return
        case "function_call_output":
            yield _result(item.get("call_id"), item.get("output"))
            return
        case "reasoning":
            thoughts = _text(item.get("content") or item.get("summary"))
            yield _turn(None, (), [thoughts]) if thoughts else item
            return
    if isinstance(item.get("parts"), list):
        yield from _of_blocks(item, item["parts"])
    elif isinstance(content, list) and any(_kind(block) for block in content):
        yield from _of_blocks(item, content)
    elif item.get("role") == "assistant" and isinstance(content, list) and "tool_calls" not in item:
        yield {**item, "content": _text(content)}
    else:
        yield item


def _kind(block: object) -> str:
    """The kind of a block if it is a tool call, a tool result or a thought; otherwise empty."""
    if not isinstance(block, dict):
        return ""
    if str(block.get("type")) in {"tool_use", "tool_result", "thinking", "redacted_thinking"}:
        return str(block["type"])
    if isinstance(block.get("functionCall"), dict):
        return "tool_use"
    if isinstance(block.get("functionResponse"), dict):
        return "tool_result"
    return "thinking" if block.get("thought") else ""


def _within(block: _Fields, name: str) -> _Fields:
    """The object with the fields of a call or result. Gemini's is nested one level deeper."""
    inner = block.get(name)
    return inner if isinstance(inner, dict) else block


def _of_blocks(item: _Fields, blocks: list[Any]) -> Iterator[_Fields]:
    """Yield one message for each tool result, then at most one with all other blocks."""
    rest: list[Any] = []
    calls: list[_Fields] = []
    thoughts: list[str] = []
    for block in blocks:
        kind = _kind(block)
        if kind == "tool_result":
            own = _within(block, "functionResponse")
            output = own.get("response", own.get("content"))
            if isinstance(output, dict) and output.keys() == {"output"}:
                output = output["output"]
            yield _result(own.get("tool_use_id", own.get("id")), output)
        elif kind == "tool_use":
            own = _within(block, "functionCall")
            arguments = own.get("input", own.get("args", {}))
            calls.append(_call(own.get("id"), own.get("name"), _json(arguments)))
        elif kind:
            thoughts.append(str(block.get("thinking") or block.get("text") or ""))
        else:
            rest.append(block)
    if str(item.get("role")) in {"assistant", "model"}:
        yield _turn(_text(rest) if rest else None, calls, thoughts)
    elif rest:
        is_text = all(isinstance(one, dict) and one.keys() == {"text"} for one in rest)
        role = item.get("role", "user")
        yield {"role": role, "content": _text(rest) if is_text else rest}


def _turn(content: str | None, calls: Iterable[_Fields], thoughts: Iterable[str] = ()) -> _Fields:
    message: _Fields = {"role": "assistant", "content": content}
    if calls := list(calls):
        message["tool_calls"] = calls
    if reasoning := "\n".join(one for one in thoughts if one):
        message["reasoning"] = reasoning
    return message


def _call(call_id: object, name: object, arguments: object) -> _Fields:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _result(call_id: object, output: object) -> _Fields:
    return {"role": "tool", "tool_call_id": call_id, "content": output}


def _text(parts: object) -> str:
    """The texts of the parts, joined. Parts without text become JSON."""
    if not isinstance(parts, list):
        return parts if isinstance(parts, str) else ""
    texts: list[str] = []
    for part in parts:
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        texts.append(text if isinstance(text, str) else _json(part))
    return "".join(texts)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
