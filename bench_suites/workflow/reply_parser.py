"""Reads the actions in a model's reply: searches, questions about tools, and calls.

The parser is tolerant, but never guesses. The text protocol has three tags:
`<tool_search>words</tool_search>`, `<tool_info>name</tool_info>` and
`<tool_call>name {"argument": value}</tool_call>`. An open tag ends where the next tag begins or the
message ends: serving stacks cut at `</tool_call>`, a special token of some families. The first
token of a call is the tool's name. The text after it contains arguments, and is never searched for
names.

A message without these tags and without native calls may contain calls in the format that its
family is trained on: `{"name": ..., "arguments": ...}` on separate lines, and `<function=name>`.
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
# Include full-width signs: no tool has one in its name, and models that write Chinese use them.
_TOKEN = re.compile(r"[^\s{}()<>\[\]\"'`,:=：，（）]+")  # noqa: RUF001
_BEFORE_NAME = re.compile(r"[\s\"'`\[]*(?:json\s*(?=\{))?", re.IGNORECASE)
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
_THOUGHT = re.compile(r"<(think(?:ing)?)>.*?(?:</\1>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^<>]{1,100})>(.*?)(</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^<>]+)>((?:(?!</?parameter).)*)</parameter>", re.DOTALL)
# Llama, Mistral, and families without a token before the call. The line contains nothing else.
_TRAINED = re.compile(
    r"<function=|^[ \t]*(?:(?:<\|python_tag\|>|\[TOOL_CALLS\])[ \t]*)?(?:\[\s*)?(?=\{)",
    re.MULTILINE,
)
# After the call comes nothing, or the next call of a list.
_AFTER_TRAINED = re.compile(r"(?:[\s\],;]|<[|\w]{1,20}>)*+(?:(?<=,)\{.*|(?<=, )\{.*)?")
_PREFIX = "functions."
# These words affect only the class of the error, never the outcome.
_REFUSES = re.compile(
    r"\b(?:can(?:no|['\u2019])t|won['\u2019]t|(?:un|not )able to|(?:decline|refuse) to)\b"
    r"[^.!?\n]{0,20}?\b(?:help|assist|comply|continue|fulfil|process|provide)"
    r"|kann ich (?:leider )?nicht (?:weiter)?helfen|ne (?:peux|puis) pas [^.!?\n]{0,10}aider"
    r"|no puedo ayudar|не могу (?:помочь|выполнить)|(?:无法|不能)(?:协助|帮助|提供|满足|完成)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Action:
    """One search, question or call of a reply.

    Attributes:
        text: The query of a search, or the tool's name as the model wrote it, which may be empty.
        arguments: A call's arguments; None if the text in their place is not a JSON object.
    """

    kind: ActionKind
    text: str
    arguments: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply.

    Attributes:
        text: The text of the reply, without reasoning.
        actions: In the order of the reply, native calls last.
        n_unclosed: Number of tags that the model did not close. They do not count as errors.
        is_cut: Whether the reply was truncated at its token limit.
        is_refusal: Whether the reply has no action and refuses to help.
    """

    text: str
    actions: tuple[Action, ...]
    n_unclosed: int = 0
    is_cut: bool = False
    is_refusal: bool = False


def parse_reply(
    text: str,
    reasoning: str | None = None,
    native: Sequence[NativeCall] = (),
    *,
    is_cut: bool = False,
    is_refusal: bool = False,
) -> ParsedReply:
    """Parse a reply. Any text is accepted; the time is linear in its length.

    Reasoning contains no actions. Text in `<think>` is also reasoning; an open tag extends to the
    end. However, a server that does not recognise the end of the reasoning puts the whole answer
    into it. Calls are therefore read from the reasoning if the reply has nothing else and was not
    truncated. In a truncated reply, only complete actions count.

    Args:
        text: The reply's content.
        reasoning: Its reasoning content.
        native: Native function calls.
        is_cut: Whether it was truncated at its token limit.
        is_refusal: Whether the API marks it as a refusal.
    """
    said = without_surrogates(_without_thought(text))
    whole, function, rest = said.rpartition("<function=")
    if is_cut and function and "</function>" not in rest:
        said = whole
    is_silent = not (said.strip() or native or is_cut)
    asked = _without_thought(without_surrogates(reasoning or "")) if is_silent else said
    actions, n_unclosed = _scan(asked, is_cut)
    actions = actions or ([] if native else _scan_trained(asked))
    calls = (_named(call.name, _whole(call.arguments)) for call in native)
    actions += [call for call in calls if call.arguments or not is_cut]
    is_refusal = is_refusal or bool(_REFUSES.search(said[:LONGEST_QUERY_CHARACTERS]))
    return ParsedReply(said, tuple(actions), n_unclosed, is_cut, is_refusal and not actions)


def _without_thought(text: str) -> str:
    """The text without reasoning in tags. The first opening tag may be missing."""
    return _THOUGHT.sub("", text).rpartition(_THOUGHT_END)[2]


def _scan(text: str, is_cut: bool) -> tuple[list[Action], int]:
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
        if is_cut and not closed and position == len(text) and not action.arguments:
            break
        actions.append(action)
        n_unclosed += not closed
    return actions, n_unclosed


def _scan_trained(text: str) -> list[Action]:
    """The calls of a message without tags; never a call within a sentence."""
    actions: list[Action] = []
    position = 0
    for _ in range(MOST_ACTIONS):
        if (opened := _TRAINED.search(text, position)) is None:
            break
        position = opened.end()
        if function := _FUNCTION.match(text, opened.start()):
            position = function.end()
            if function[3]:
                actions.append(_from_function(function))
            continue
        value, end = _decode(text, position)
        rest = text[end : end + LONGEST_QUERY_CHARACTERS].partition("\n")[0]
        if value is not None and _AFTER_TRAINED.fullmatch(rest):
            position = end
            action = _from_object(value)
            if action.text and {"arguments", "parameters", "function"} & value.keys():
                actions.append(action)
    return actions


def _lookup(kind: ActionKind, body: str) -> Action:
    if kind == "info":
        name = _TOKEN.search(body[: 2 * LONGEST_NAME_CHARACTERS])
        return Action(kind, name[0][:LONGEST_NAME_CHARACTERS] if name else "")
    return Action(kind, " ".join(body[:LONGEST_QUERY_CHARACTERS].split()))


def _read_call(text: str, start: int) -> tuple[Action, int, bool]:
    """The call whose body begins at `start`, the position after it, and whether it was closed."""
    before = _BEFORE_NAME.match(text, start)
    begin = before.end() if before else start
    # Read arguments as JSON first: a string in them can hold any text, including tags.
    if text.startswith("{", begin):
        value, end = _decode(text, begin)
        action = _from_object(value)
    elif function := _FUNCTION.match(text, begin):
        action, end = _from_function(function), function.end()
        value = action.arguments
    else:
        name = _TOKEN.match(text, begin)
        begin = name.end() if name else begin
        word = name[0][:LONGEST_NAME_CHARACTERS] if name else ""
        brace = _BEFORE_ARGUMENTS.match(text, begin)
        value, end = _decode(text, brace.end()) if brace else (None, begin)
        action = Action("call", word.removeprefix(_PREFIX), value)
    tag = _TAG.search(text, end)
    closed = bool(tag and tag[1])
    stop = tag.start() if tag else len(text)
    if value is None and action.text:
        # If the tag is open, only text on the name's line can be arguments.
        rest = text[end:stop] if closed else text[end:stop].partition("\n")[0]
        action = Action("call", action.text, None if rest.strip(_DECORATION) else {})
    return action, stop, closed


def _from_object(value: dict[str, object] | None) -> Action:
    """A call written as one JSON object, the format of some families."""
    value = value or {}
    if isinstance(function := value.get("function"), dict):
        value = function
    name = next((value[key] for key in ("name", "tool", "tool_name") if key in value), "")
    arguments = next(
        (value[key] for key in ("arguments", "parameters", "args") if key in value), {}
    )
    if isinstance(arguments, str):
        arguments = _whole(arguments)
    named = name if isinstance(name, str) else ""
    return _named(named, arguments if named and isinstance(arguments, dict) else None)


def _from_function(function: re.Match[str]) -> Action:
    """A call written as `<function=name>` that contains a JSON object or parameter tags."""
    body = function[2].strip()
    arguments = _whole(body)
    if given := _PARAMETER.findall(body):
        arguments = {name.strip(): _value(text.strip()) for name, text in given}
    return _named(function[1], arguments)


def _value(text: str) -> object:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return text


def _named(name: str, arguments: dict[str, object] | None) -> Action:
    """The action of a native call, whose function may be one of the tags."""
    name = name.strip().removeprefix(_PREFIX)
    kind = _KINDS.get(name.lower())
    if kind is None:
        name = without_surrogates(name[:LONGEST_NAME_CHARACTERS])
        return Action("call", name[:LONGEST_NAME_CHARACTERS], arguments)
    if kind == "call":
        return _from_object(arguments)
    text = next((v for v in (arguments or {}).values() if isinstance(v, str)), "")
    return _lookup(kind, without_surrogates(text))


def _whole(arguments: str) -> dict[str, object] | None:
    """Arguments from JSON text; empty if there is no text."""
    return _decode(arguments, 0)[0] if arguments.strip() else {}


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)


def _decode(text: str, position: int) -> tuple[dict[str, object] | None, int]:
    """The JSON object at a position, and its end; (None, position) without an object."""
    # Decode only a short piece: json's errors count lines from the start of the text. With
    # thousands of malformed calls, decoding the whole text would take quadratic time (400 kB:
    # seconds instead of milliseconds).
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
