"""JSON as servers write it, made readable, storable and small enough, for all APIs."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding JSON from elsewhere raises: no JSON, no text, or nested without end."""


LEFT_OUT: ContextVar[set[str] | None] = ContextVar("left_out", default=None)
"""What was left out of answers, where that is to be said: fields, each with what it held."""


def _note(field: str, error: Exception) -> None:
    held = str(error).partition(" - at ")[0].rpartition("got ")[2].strip("`")
    if (left_out := LEFT_OUT.get()) is not None and held != "null":
        left_out.add(f"{field} ({held})")


def part_of(text: msgspec.Raw | bytes | str, kind: type[T], field: str = "") -> T | None:
    """What a JSON text or a part of one says; None where it is something else or nothing.

    Args:
        text: Of any content.
        kind: What it should be.
        field: Of an answer, where something else is to be said.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        if field and isinstance(error, msgspec.ValidationError):
            _note(field, error)
        return None


_LARGEST_BYTES = 1024 * 1024
"""Mending takes up to 13 times the text's size for a moment."""
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# A string without its end is one to the end of the text, or each quote in it would be tried anew.
_NO_NUMBER = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def sanitised(content: bytes) -> bytes | None:
    r"""JSON text that can be read and stored, or None where nothing was found to mend.

    Escapes of lone surrogates and bytes that are no UTF-8 become text that shows them: `\ud800`,
    `\xff`. Numbers that are none become null. A mark of the byte order at the beginning is left
    out.

    Args:
        content: JSON text, perhaps; above 1 MiB it is not looked at.
    """
    if len(content) > _LARGEST_BYTES:
        return None
    text = content.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    whole = _NO_UTF8.sub(lambda byte: f"\\\\x{ord(byte[0]) - 0xDC00:02x}", text).encode()
    whole = _ESCAPE.sub(lambda one: one[0] if one[1] is None else b"\\\\" + one[1], whole)
    whole = _NO_NUMBER.sub(lambda string: string[1] or b"null", whole)
    return whole if whole != content else None


_MOST_ODD = 20
"""Kinds of odd fields: each costs another reading of all."""
_MOST_ITEMS = 100_000
_ANSWER = frozenset(
    ("choices", "candidates", "message", "delta", "content", "parts", "text", "partial_json")
).union(("tool_calls", "function", "name", "arguments", "input", "function_call"))
"""Fields that are the answer: what is wrong with one spoils it. All others are beside it."""
_MAY_LACK = frozenset(("tool_calls", "delta"))
EMPTY = frozenset((b"null", b"false", b"0", b'""', b"[]", b"{}"))
_BEGINS = {"array": b"[", "object": b"{", "bool": b"tf", "str": b'"', "null": b"n"}
_NUMBER = b"-0123456789"
_NODES: Any = dict[str, msgspec.Raw] | list[msgspec.Raw]


def understood(content: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """What a JSON text says, without the side fields that are of another type than expected.

    A text with a number is the number, a number in the place of a text its digits, an object in
    that of a list its only item. What is in no such place is not read.

    Args:
        content: JSON.
        decoder: Of its shape.

    Returns:
        None where the answer itself is none, or too much is odd.
    """
    whole = None if _has_more(content, b",", _MOST_ITEMS) else part_of(content, _NODES)
    for _ in range(_MOST_ODD):
        try:
            return msgspec.json.decode(msgspec.json.encode(whole), type=decoder.type, strict=False)
        except msgspec.ValidationError as error:
            if not _without_odd(whole, error):
                break
    return None


def fitted(plain: object, decoder: msgspec.json.Decoder[T]) -> T | None:
    """What `understood` makes of plain data that came as JSON."""
    try:
        found: T = msgspec.convert(plain, decoder.type)
    except msgspec.ValidationError:
        return understood(msgspec.json.encode(plain), decoder)
    return found


def _without_odd(whole: Any, error: msgspec.ValidationError) -> bool:  # noqa: ANN401 - any JSON
    """Take what is no such field out of an answer, and what is odd alike in its other items.

    Returns:
        False: it is the answer.
    """
    said, _, place = str(error).partition(" - at ")
    path = re.findall(r"\w+", place)
    names = [step for step in path if not step.isdecimal()]
    begins = _BEGINS.get(said.rpartition("got ")[2].strip("`"), _NUMBER)
    is_mended = False
    for node, key in reversed([*_places(whole, path)] if names else []):
        odd = msgspec.json.encode(node[key])
        is_one = begins == b"{" and "`array" in said and odd != b"{}"
        is_beside = names[-1] not in _ANSWER or (names[-1] in _MAY_LACK and odd in EMPTY)
        if odd[:1] not in begins or not (is_beside or (is_one and names[-1] == "tool_calls")):
            continue
        if begins == _NUMBER and "`str" in said and names[-1] != "refusal":
            node[key] = odd.decode()
        elif is_one:
            node[key] = [msgspec.Raw(odd)]
        else:
            del node[key]
            _note(".".join(names), error)
        is_mended = True
    return is_mended


def _places(node: Any, path: list[str]) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON
    """The places of a path in all items of its lists: what holds each, and where in it."""
    step, *rest = path
    if isinstance(node, list) != step.isdecimal():
        return
    for key in range(len(node)) if isinstance(node, list) else {step} & node.keys():
        if not rest:
            yield node, key
            continue
        if isinstance(node[key], msgspec.Raw):
            node[key] = part_of(node[key], _NODES) or node[key]
        if isinstance(node[key], dict | list):
            yield from _places(node[key], rest)


MOST_OBJECTS = 10_000
_SMALL_BYTES = 256 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_too_many_objects(content: bytes) -> bool:
    """Whether a JSON text has more objects than an answer needs.

    16 MiB of `{},{},` would become 5.6 million objects of 100 bytes and more. A small text may hold
    what it likes: 256 KiB make 10 MB.
    """
    return _has_more(content, b"{", MOST_OBJECTS)


def _has_more(content: bytes, sign: bytes, most: int) -> bool:
    """Whether a text that is not small has a sign more often than that."""
    if len(content) <= _SMALL_BYTES or content.count(sign) <= most:
        return False
    # Braces are also what code is made of: only those outside strings are objects. One string after
    # the other, for a text without strings would be put together out of as many pieces: 350 MB.
    n_signs, end = 0, 0
    for string in _STRING.finditer(content):
        n_signs += content.count(sign, end, string.start())
        if n_signs > most:
            return True
        end = string.end()
    return n_signs + content.count(sign, end) > most
