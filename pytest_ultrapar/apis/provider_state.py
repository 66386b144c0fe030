"""State that a provider stores, and that requests and answers refer to by name.

If a request names a response, a conversation, a file or a container, it must use the key and the
instance that created this state. Encrypted reasoning is bound, too: only the organization that
received it can send it back. Anthropic's thinking signatures are valid everywhere.

Names are read from the JSON of any API, because these fields have the same meaning in all APIs.
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
"""Fields that contain a name, a list of names, or an object whose `id` is a name."""
_ENCRYPTED = "encrypted_content"
_REFERENCE = "item_reference"
_FILES = "/files/"
"""Part of the addresses of Gemini's files; other addresses are public."""
_KEPT = ("response", "conversation", "file", "vector_store", "container")
"""Prefixes of the `object` field of stored objects."""
_NEEDING = tuple(f'"{name}"'.encode() for name in (*_NAMING, _ENCRYPTED, _REFERENCE))
_MAKING = tuple(f'"{kind}'.encode() for kind in _KEPT)


def state_named(body: bytes) -> frozenset[str]:
    """Return the names of the stored state that a request needs; empty for nearly all requests.

    Args:
        body: The body to send, with any content.
    """
    return frozenset(_names(part_of(body, object))) if _has(body, _NEEDING) else frozenset()


def state_made(answer: bytes) -> frozenset[str]:
    """Return the names of the state that an answer created. Later requests use these names.

    Args:
        answer: The body of an answer or of a stream, with any content.
    """
    if not _may_make(answer):
        return frozenset()
    if answer.lstrip()[:1] in {b"{", b"["}:
        return _made(answer)
    events = EventReader()
    return frozenset().union(*(_made(event) for event in events.feed(answer) + events.end()))


def _has(content: bytes, words: tuple[bytes, ...]) -> bool:
    """Whether JSON contains one of the words as a field or value.

    Inside a text, the quotes of such a word are escaped. The search takes 4 us for an answer of
    6 kB without a match.
    """
    return any(word in content for word in words)


def _may_make(answer: bytes) -> bool:
    """Whether an answer may contain a name.

    The field `object` alone proves nothing, because chat completions contain it, too.
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
    """Return the reason why no lane may send a request, or None.

    Args:
        fields: The decoded body.

    Returns:
        Text to follow "the request".
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
