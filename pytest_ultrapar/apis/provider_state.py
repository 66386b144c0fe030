"""State that a provider stores, and that requests and answers refer to by name.

If a request names a stored response, conversation, file or container, it must use the key and the
instance with which that object was created. Encrypted reasoning is tied to an organisation: only
the one that received it can send it back. Anthropic's thinking signatures are valid everywhere.

This module need not know the API, because a field that contains a name has the same meaning in all
APIs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.apis.server_json import has_too_many_objects, part_of
from pytest_ultrapar.apis.server_sent_events import EventReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMING = frozenset(
    {
        "previous_response_id",
        "conversation",
        "file_id",
        "file_ids",
        "container",
        "container_id",
        "vector_store_id",
        "vector_store_ids",
        "cachedContent",
        "fileUri",
    }
)
"""Fields that contain the name of stored state, a list of names, or an object whose `id` is one."""
_ENCRYPTED = "encrypted_content"
_REFERENCE = "item_reference"
_FILES = "/files/"
"""A `fileUri` with this text refers to a file that Gemini stores; other addresses are public."""
_KEPT = ("response", "conversation", "file", "vector_store", "container")
"""The `object` field of a stored object begins with one of these words."""
_NEEDING = tuple(f'"{name}"'.encode() for name in (*_NAMING, _ENCRYPTED, _REFERENCE))
_MAKING = tuple(f'"{kind}'.encode() for kind in _KEPT)


def state_named(body: bytes) -> frozenset[str]:
    """Return the names of the stored state that a request needs; nearly all requests need no state.

    Args:
        body: The body to send, which may be any bytes.
    """
    return frozenset(_names(part_of(body, object))) if _has(body, _NEEDING) else frozenset()


def state_made(answer: bytes) -> frozenset[str]:
    """Return the names by which later requests can refer to the state that an answer created.

    Args:
        answer: The body of an answer, streamed or not, which may be any bytes.
    """
    if not _may_make(answer):
        return frozenset()
    if answer.lstrip()[:1] in {b"{", b"["}:
        return _made(answer)
    events = EventReader()
    return frozenset().union(*(_made(event) for event in events.feed(answer) + events.end()))


def _has(content: bytes, words: tuple[bytes, ...]) -> bool:
    """Whether JSON contains one of the words as a field or value.

    A quoted word inside a text does not match, because its quotes are escaped. For a 6 kB answer
    without a match, the search takes 4 us.
    """
    return any(word in content for word in words)


def _may_make(answer: bytes) -> bool:
    """Whether an answer may contain the name of stored state.

    A field `object` is not enough, because chat completions have one, too.
    """
    return _has(answer, _NEEDING) or (b'"object"' in answer and _has(answer, _MAKING))


def _made(answer: bytes) -> frozenset[str]:
    if not _may_make(answer) or has_too_many_objects(answer):
        return frozenset()
    found = part_of(answer, object)
    names = set(_names(found))
    whole = found.get("response", found) if isinstance(found, dict) else None
    if isinstance(whole, dict) and str(whole.get("object")).startswith(_KEPT):
        items = whole.get("output")
        for one in (whole, *(items if isinstance(items, list) else ())):
            if isinstance(one, dict) and isinstance(one.get("id"), str):
                names.add(one["id"])
    return frozenset(names)


def flaw_of_request(fields: Mapping[str, Any]) -> str | None:
    """Return the reason why a request must not be sent on any lane; None if it may be sent.

    Args:
        fields: The decoded body.

    Returns:
        The rest of a sentence that begins with "the request".
    """
    if fields.get("background") is not True:
        return None
    return (
        "asks for background mode, which is not allowed: the model would keep working while no "
        "request is in flight, and the limits would not count this work"
    )


def _names(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    # A stack instead of recursion, because a server's JSON may be nested deeply.
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        if not isinstance(value, dict):
            continue
        stack += value.values()
        for field in _NAMING & value.keys():
            yield from _names_in(value[field], is_address=field == "fileUri")
        encrypted, own = value.get(_ENCRYPTED), value.get("id")
        if isinstance(encrypted, str) and encrypted:
            yield "encrypted:" + hashlib.sha256(encrypted.encode()).hexdigest()[:32]
        if value.get("type") == _REFERENCE and isinstance(own, str):
            yield own


def _names_in(value: Any, *, is_address: bool) -> Iterator[str]:  # noqa: ANN401 - any JSON
    for one in value if isinstance(value, list) else (value,):
        name = one.get("id") if isinstance(one, dict) else one
        if isinstance(name, str) and name and (_FILES in name or not is_address):
            yield name
