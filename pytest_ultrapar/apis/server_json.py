"""Repair and check JSON from servers of all APIs, so that it can be read and stored."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors in decoding JSON from a server: invalid JSON, invalid UTF-8, or excessive nesting."""


LEFT_OUT: ContextVar[set[str] | None] = ContextVar("left_out", default=None)
"""The fields of answers that were ignored because of their types, each with its actual type. None
if such fields are not reported."""


def _note(field: str, error: Exception) -> None:
    held = str(error).partition(" - at ")[0].rpartition("got ")[2].strip("`")
    if (left_out := LEFT_OUT.get()) is not None and held != "null":
        left_out.add(f"{field} ({held})")


def part_of(text: msgspec.Raw | bytes | str, kind: type[T], field: str = "") -> T | None:
    """Decode a JSON text or a part of one; None if it is invalid or has another type.

    Args:
        text: Any text.
        kind: The expected type.
        field: The name of the field in the answer. If given, a wrong type is reported.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        if field and isinstance(error, msgspec.ValidationError):
            _note(field, error)
        return None


_LARGEST_BYTES = 1024 * 1024
"""The largest text to repair: a repair briefly needs up to 13 times as much memory as the text."""
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# The closing quote is optional: an unterminated string extends to the end of the text. Otherwise
# the search begins again at each quote.
_NO_NUMBER = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def repaired(content: bytes) -> bytes | None:
    r"""Return the repaired JSON text, or None if nothing was repaired.

    Escapes of unpaired surrogates and invalid UTF-8 become visible text: `\ud800`, `\xff`. `NaN`
    and `Infinity` become null. A byte order mark at the beginning is removed.

    Args:
        content: Any bytes; texts larger than 1 MiB are not repaired.
    """
    if len(content) > _LARGEST_BYTES:
        return None
    text = content.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    whole = _NO_UTF8.sub(lambda byte: f"\\\\x{ord(byte[0]) - 0xDC00:02x}", text).encode()
    whole = _ESCAPE.sub(lambda one: one[0] if one[1] is None else b"\\\\" + one[1], whole)
    whole = _NO_NUMBER.sub(lambda string: string[1] or b"null", whole)
    return whole if whole != content else None


_MOST_ODD = 20
"""The maximum number of attempts to decode one answer, which is repaired after each failure."""
_MOST_ITEMS = 100_000
_ANSWER = frozenset(
    ("choices", "candidates", "message", "delta", "content", "parts", "text", "partial_json")
).union(("tool_calls", "function", "name", "arguments", "input", "function_call"))
"""The fields that hold the answer itself: if one has a wrong type, the answer is invalid. All other
fields are optional."""
_MAY_LACK = frozenset(("tool_calls", "delta"))
EMPTY = frozenset((b"null", b"false", b"0", b'""', b"[]", b"{}"))
_BEGINS = {"array": b"[", "object": b"{", "bool": b"tf", "str": b'"', "null": b"n"}
_NUMBER = b"-0123456789"
_NODES: Any = dict[str, msgspec.Raw] | list[msgspec.Raw]


def decode_tolerantly(content: bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Decode a JSON text whose optional fields may have unexpected types.

    A string in place of a number is converted to the number, and a number in place of a string to
    its digits. An object in place of a list becomes the only item of that list. Other optional
    fields with a wrong type are dropped.

    Args:
        content: JSON.
        decoder: The decoder for the expected shape.

    Returns:
        The decoded text; None if a field of the answer itself has a wrong type, or if too many
        optional fields have wrong types.
    """
    whole = None if _has_more(content, b",", _MOST_ITEMS) else part_of(content, _NODES)
    for _ in range(_MOST_ODD):
        try:
            return msgspec.json.decode(msgspec.json.encode(whole), type=decoder.type, strict=False)
        except msgspec.ValidationError as error:
            if not _without_odd(whole, error):
                break
    return None


def convert_tolerantly(plain: object, decoder: msgspec.json.Decoder[T]) -> T | None:
    """Do the same as `decode_tolerantly` for plain data that was decoded from JSON."""
    try:
        found: T = msgspec.convert(plain, decoder.type)
    except msgspec.ValidationError:
        return decode_tolerantly(msgspec.json.encode(plain), decoder)
    return found


def _without_odd(whole: Any, error: msgspec.ValidationError) -> bool:  # noqa: ANN401 - any JSON
    """Repair or remove the field that caused the error, in every item of the list that contains it.

    Returns:
        False if nothing was changed, because the field is part of the answer itself.
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
    """Yield the container and key of each value at a path.

    A number in the path stands for all items of a list.
    """
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
    """Whether a JSON text contains more objects than any answer needs.

    16 MiB of `{},{},` would become 5.6 million objects of at least 100 bytes each. Small texts are
    not limited: 256 KiB never take more than 10 MB when they are decoded.
    """
    return _has_more(content, b"{", MOST_OBJECTS)


def _has_more(content: bytes, sign: bytes, most: int) -> bool:
    """Whether `sign` occurs more than `most` times outside strings; False for every small text."""
    if len(content) <= _SMALL_BYTES or content.count(sign) <= most:
        return False
    # Strings may contain code with braces, so count only braces outside strings. Go through the
    # strings one by one, because removing them from the text would take 350 MB.
    n_signs, end = 0, 0
    for string in _STRING.finditer(content):
        n_signs += content.count(sign, end, string.start())
        if n_signs > most:
            return True
        end = string.end()
    return n_signs + content.count(sign, end) > most
