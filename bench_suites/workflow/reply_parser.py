"""What a model's reply asks for: searches, questions about tools, calls. Tolerant, never guessing.

The text protocol has three tags, `<tool_search>words</tool_search>`, `<tool_info>name</tool_info>`
and `<tool_call>name {"argument": value}</tool_call>`. A tag that is not closed ends where the next
one begins or the message ends: serving stacks cut at `</tool_call>`, a special token of some
families. The first token of a call is the tool's name; what follows is argument text and is never
searched for names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from pytest_ultrapar.store.journal import without_surrogates

if TYPE_CHECKING:
    from bench_suites.workflow.chat_model import NativeCall

ActionKind = Literal["search", "info", "call"]

LONGEST_NAME_CHARACTERS = 80
LONGEST_QUERY_CHARACTERS = 400
LONGEST_ARGUMENTS_CHARACTERS = 16_000
DEEPEST_ARGUMENTS = 8
MOST_ACTIONS = 20

_TAG = re.compile(
    r"<(/?)\s{0,4}(tool_search|tool_info|tool_call)(?:\s[^<>]{0,100})?(?:>|\Z)", re.IGNORECASE
)
# Full-width signs too: no tool has one in its name, and models that write Chinese put them there.
_TOKEN = re.compile(r"[^\s{}()<>\[\]\"'`,:=：，（）]+")  # noqa: RUF001
_BEFORE_NAME = re.compile(r"[\s\"'`]*(?:json\s*(?=\{))?", re.IGNORECASE)
_BEFORE_ARGUMENTS = re.compile(
    r"[\s\"'`(:=,：，（]*(?:(?:json|arguments|parameters|args)[\s\"'`:=]*)?(?=\{)",  # noqa: RUF001
    re.IGNORECASE,
)
_DECORATION = " \t\r\n\"'`()[]:;,."
_KINDS: dict[str, ActionKind] = {
    "tool_search": "search",
    "tool_info": "info",
    "tool_call": "call",
}
_THOUGHT_END = "</think>"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a reply asks for.

    Attributes:
        text: The query of a search; else the tool's name as the model wrote it, perhaps empty.
        arguments: A call's arguments; None if there is text in their place that is no JSON object.
    """

    kind: ActionKind
    text: str
    arguments: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply as the episode reads it.

    Attributes:
        text: What the model said: its content, or its reasoning where there is no content.
        actions: In the order of the reply, native calls last.
        n_unclosed: Tags that were not closed; no fault, but worth counting.
    """

    text: str
    actions: tuple[Action, ...]
    n_unclosed: int = 0


def parse_reply(
    text: str, reasoning: str | None = None, native: Sequence[NativeCall] = ()
) -> ParsedReply:
    """What a reply says and asks for. Takes any text; time is linear in it.

    Args:
        text: The reply's content.
        reasoning: Its reasoning content; the answer when there is no content and no native call.
        native: Native function calls.
    """
    said = _without_thought(text)
    if not said.strip() and not native:
        said = _without_thought(reasoning or text)
    said = without_surrogates(said)
    actions, n_unclosed = _scan(said)
    actions += [_native(call.name, call.arguments) for call in native]
    return ParsedReply(said, tuple(actions), n_unclosed)


def _without_thought(text: str) -> str:
    """The text behind the last closed thought; all of it if nothing stands there."""
    _, closed, rest = text.rpartition(_THOUGHT_END)
    return rest if closed and rest.strip() else text


def _scan(text: str) -> tuple[list[Action], int]:
    actions: list[Action] = []
    n_unclosed = 0
    position = 0
    while len(actions) < MOST_ACTIONS and (opened := _TAG.search(text, position)) is not None:
        position = opened.end()
        if opened[1]:
            continue
        kind = _KINDS[opened[2].lower()]
        if kind == "call":
            action, position, closed = _read_call(text, opened.end())
        else:
            end = _TAG.search(text, opened.end())
            position = end.start() if end else len(text)
            closed = bool(end and end[1])
            action = _lookup(kind, text[opened.end() : position])
        actions.append(action)
        n_unclosed += not closed
    return actions, n_unclosed


def _lookup(kind: ActionKind, body: str) -> Action:
    if kind == "info":
        name = _TOKEN.search(body[: 2 * LONGEST_NAME_CHARACTERS])
        return Action(kind, name[0][:LONGEST_NAME_CHARACTERS] if name else "")
    return Action(kind, " ".join(body[:LONGEST_QUERY_CHARACTERS].split()))


def _read_call(text: str, start: int) -> tuple[Action, int, bool]:
    """The call whose body begins at `start`, where reading goes on, and whether it was closed."""
    begin = _end_of(_BEFORE_NAME, text, start)
    # Arguments are read as JSON first: a string in them may hold anything, tags included.
    if text.startswith("{", begin):
        value, end = _decode(text, begin)
        action = _from_object(value)
    else:
        name = _TOKEN.match(text, begin)
        begin = name.end() if name else begin
        word = name[0][:LONGEST_NAME_CHARACTERS] if name else ""
        brace = _BEFORE_ARGUMENTS.match(text, begin)
        value, end = _decode(text, brace.end()) if brace else (None, begin)
        action = Action("call", word, value)
    tag = _TAG.search(text, end)
    closed = bool(tag and tag[1])
    stop = tag.start() if tag else len(text)
    if value is None and action.text:
        # Where the tag is not closed, only the name's own line can be meant as arguments.
        rest = text[end:stop] if closed else text[end:stop].partition("\n")[0]
        action = Action("call", action.text, None if rest.strip(_DECORATION) else {})
    return action, stop, closed


def _from_object(value: dict[str, object] | None) -> Action:
    """A call written as one JSON object, as some families are trained to."""
    if value is None:
        return Action("call", "")
    name = next((value[key] for key in ("name", "tool", "tool_name") if key in value), "")
    arguments = next(
        (value[key] for key in ("arguments", "parameters", "args") if key in value), {}
    )
    if isinstance(arguments, str):
        arguments, _ = _decode(arguments, 0) if arguments.strip() else ({}, 0)
    return Action(
        "call",
        _name(name) if isinstance(name, str) else "",
        arguments if isinstance(arguments, dict) else None,
    )


def _name(text: str) -> str:
    return without_surrogates(text.strip()[:LONGEST_NAME_CHARACTERS])[:LONGEST_NAME_CHARACTERS]


def _native(name: str, arguments: str) -> Action:
    decoded, _ = _decode(arguments, 0) if arguments.strip() else ({}, 0)
    kind = _KINDS.get(name.strip().lower())
    if kind is None:
        return Action("call", _name(name), decoded)
    if kind == "call":
        return _from_object(decoded)
    text = next((v for v in (decoded or {}).values() if isinstance(v, str)), "")
    return _lookup(kind, without_surrogates(text))


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)


def _decode(text: str, position: int) -> tuple[dict[str, object] | None, int]:
    """The JSON object at a position and where it ends; (None, position) if there is none."""
    # A bounded piece: json's errors count lines from the text's beginning, which over thousands of
    # broken calls would be quadratic (400 kB: seconds instead of milliseconds).
    piece = text[position : position + LONGEST_ARGUMENTS_CHARACTERS]
    try:
        value, end = _decoder.raw_decode(piece)
    except (ValueError, RecursionError):
        return None, position
    if not isinstance(value, dict) or _is_deep(value):
        return None, position
    return cast("dict[str, object]", value), position + end


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST_ARGUMENTS):
        level = [
            child
            for outer in level
            if isinstance(outer, dict | list)
            for child in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)
