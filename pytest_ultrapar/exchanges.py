"""Store all requests and answers of an episode in the journal, without storing anything twice.

Every turn sends the whole conversation again. So the journal stores only the part of a request's
body that differs from an earlier body in the episode. Two numbers give the lengths, in bytes, of
the prefix and the suffix that the two bodies share. Bodies are not decoded, so each of them can be
restored exactly as it was sent, even if it is not JSON.

Long strings (images, files, documents) are stored as parts. Each part is a file in the run's
directory, named after a hash of its content. The body then contains the part's name instead of
the string, and is still valid JSON.
"""

from __future__ import annotations

import base64
import re
import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pytest_ultrapar.records import Exchange, TurnMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PART = "\\u0000part:"
"""The prefix of a part's name in a JSON string. It begins with JSON's escape for NUL, a character
that models and suites do not use. If a body contains the prefix anyway, the whole body becomes a
part."""
LARGE_BYTES = 16 * 1024
"""Strings of at least this length become parts. A body that is shorter than this is not searched
for long strings."""
INLINE_BYTES = 256 * 1024
"""The maximum length of the text that a record stores for one body. If a body's text is longer even
without its long strings, the whole body becomes a part. Records are kept short because a reader
that looks for the end of a record has to read all of it."""
_MOST_QUOTES = 100_000
"""A body with more quotes than this is not searched for long strings, because the search would
block the event loop for over 0.02 s."""
_REMEMBERED_BYTES = 256 * 1024
_REMEMBERED = 4
"""The maximum number of earlier bodies with which a new body is compared. One would not be enough,
because requests to the case's own model and to a judge may alternate."""
_PART = PART.encode()
_NAME_LENGTH = 64
_PART_NAME = re.compile(re.escape(_PART) + b"([0-9a-f]{%d})" % _NAME_LENGTH)
# A string that is not closed must also match. Otherwise, the search would run to the end of the
# body again from each quote in that string.
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?\Z)', re.DOTALL)
_Asked = TypeVar("_Asked")
_UNSENT = frozenset({"model", "stream", "stream_options"})
# These headers select versions and previews of an API. All other headers identify the client or
# belong to the connection.
_CHANGES_ANSWER = re.compile(r".+-(beta|version)")
_NO_HEADERS: Mapping[str, str] = {}


class Said(NamedTuple):
    """One exchange, with the bodies of its request and its answer.

    Attributes:
        exchange: The record in the journal.
        sent: The request's body, with the content of each part instead of the part's name.
        came: The answer's body, in the same form; empty if there was no answer.
    """

    exchange: Exchange
    sent: bytes
    came: bytes

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.exchange.is_stream


class ExchangeLog:
    """Collects the exchanges of one episode in `noted`, the list that the journal stores.

    Args:
        keep: Stores a part, and returns its name (from `part_name`).
        redact: Removes secrets from streams, because the journal cannot find secrets in compressed
            text.
    """

    def __init__(self, keep: Callable[[bytes], str], redact: Callable[[bytes], bytes]) -> None:
        self.noted: list[Exchange] = []
        self._keep = keep
        self._redact = redact
        self._remembered: dict[int, bytes] = {}

    def add(
        self,
        turn: int,
        *,
        api: str,
        path: str,
        status: int | None,
        sent: bytes,
        came: bytes = b"",
        whole: bytes | None = None,
        query: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
        role: str = "",
    ) -> None:
        """Record one exchange.

        Args:
            turn: The number of the client's call, counted from 0.
            api: The name of the API in the registry.
            path: The requested path, as in `Exchange`.
            status: The HTTP status; None if no answer arrived.
            sent: The request's body, without the lane's name for the model (`without_model`).
            came: The answer's body, without HTTP content encoding. For a stream, this is all of its
                events.
            whole: For a stream, a single body made from its events. If a secret is found in this
                body, the body is stored instead of the events. A secret that is split between
                events would not be found in them.
            query: The query string.
            headers: The headers of the request. Only those that can change the answer are stored.
            role: The role to which the request was sent; empty for the case's own model.
        """
        body, base, first, last = self._sent(sent)
        is_stream = whole is not None and self._redact(whole) == whole
        if whole is not None:
            answer = self._packed(came) if is_stream else self._whole(whole)
        else:
            answer = self._whole(came)
        self.noted.append(
            Exchange(
                turn,
                api,
                path,
                status,
                body,
                base,
                first,
                last,
                answer,
                is_stream,
                query,
                matters(headers),
                role,
            )
        )

    def _sent(self, sent: bytes) -> tuple[str, int | None, int, int]:
        plain = body_with_part_names(sent, self._keep)
        found = None if plain is None else self._difference(plain)
        return (PART + self._keep(sent), None, 0, 0) if found is None else found

    def _difference(self, body: bytes) -> tuple[str, int | None, int, int] | None:
        """Return the text that a body does not share with an earlier one; None if this is too long.

        The result also contains `base`, `first` and `last`, as in `Exchange`.
        """
        base, first, last = None, 0, 0
        for number, earlier in self._remembered.items():
            if (n_common := n_first(earlier, body)) >= first:
                base, first = number, n_common
        if base is not None:
            first, last = _ends(self._remembered[base], body, first)
            base = base if first or last else None
        middle = body[first : len(body) - last]
        if len(middle) > INLINE_BYTES:
            return None
        known = self._remembered
        known[len(self.noted)] = body
        while len(known) > _REMEMBERED or (
            len(known) > 1 and sum(map(len, known.values())) > _REMEMBERED_BYTES
        ):
            del known[next(iter(known))]
        return middle.decode(), base, first, last

    def _whole(self, came: bytes) -> str:
        plain = body_with_part_names(came, self._keep)
        if plain is None or len(plain) > INLINE_BYTES:
            return PART + self._keep(came)
        return plain.decode()

    def _packed(self, came: bytes) -> str:
        # Events differ from each other only by a word, so they compress well: 500 events of 125 kB
        # in total become 5 kB in 0.5 ms.
        packed = base64.b64encode(zlib.compress(self._redact(came), 1))
        return packed.decode() if len(packed) <= INLINE_BYTES else PART + self._keep(came)

    def changed(self, exchanges: Sequence[Exchange], change: Callable[[str], str]) -> None:
        """Record copies of exchanges, with `change` applied to bodies, query strings and headers.

        Streams and the content of parts are not changed.
        """
        for one, body in zip(exchanges, skeletons(exchanges), strict=True):
            text = change(body.decode())
            found = self._difference(text.encode()) or (text, None, 0, 0)
            sent, base, first, last = found
            came = one.came if one.is_stream else change(one.came)
            self.noted.append(
                msgspec.structs.replace(
                    one,
                    sent=sent,
                    base=base,
                    first=first,
                    last=last,
                    came=came,
                    query=change(one.query),
                    headers={change(name): change(value) for name, value in one.headers.items()},
                )
            )


def said(exchanges: Sequence[Exchange], part: Callable[[str], bytes]) -> list[Said]:
    """Unpack the exchanges of an episode, in the order of their turns.

    Args:
        exchanges: The records in the journal.
        part: Returns the content of the part with a given name.

    Raises:
        ValueError: An exchange refers to a missing body, or a stream cannot be unpacked.
    """
    found = [
        Said(one, with_parts(body, part), _answer(one, part))
        for one, body in zip(exchanges, skeletons(exchanges), strict=True)
    ]
    return sorted(found, key=lambda one: one.exchange.turn)


def skeletons(exchanges: Sequence[Exchange]) -> list[bytes]:
    """Return the request bodies in the order in which they were recorded.

    They contain the names of parts instead of the parts' content.

    Raises:
        ValueError: An exchange refers to a missing body.
    """
    found: list[bytes] = []
    for one in exchanges:
        body = one.sent.encode()
        if one.base is not None:
            if not 0 <= one.base < len(found) or min(one.first, one.last) < 0:
                raise ValueError(
                    f"an exchange has an invalid reference to number {one.base} of {len(found)}"
                )
            base = found[one.base]
            body = base[: one.first] + body + base[len(base) - one.last :]
        found.append(body)
    return found


def body_with_part_names(body: bytes, keep: Callable[[bytes], str]) -> bytes | None:
    """Replace any long strings in a body with the names of parts.

    Args:
        body: The body, which is usually JSON.
        keep: Stores a part and returns its name.

    Returns:
        The new body. None if the whole body must become a part, because it is not text or already
        contains the prefix of a part's name.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return None
    if _PART in body:
        return None
    if len(body) < LARGE_BYTES or body.count(b'"') > _MOST_QUOTES:
        return body
    pieces: list[bytes] = []
    at = 0
    for match in _STRING.finditer(body):
        start, end = match.span(1)
        if end - start >= LARGE_BYTES:
            pieces += (body[at:start], _PART, keep(body[start:end]).encode())
            at = end
    return b"".join((*pieces, body[at:])) if pieces else body


def with_parts(body: bytes, part: Callable[[str], bytes]) -> bytes:
    """Replace the names of parts in a body with the content of the parts.

    Args:
        body: A body from `skeletons`, or the body of an answer.
        part: Returns the content of the part with a given name.
    """
    if _PART not in body:
        return body
    return _PART_NAME.sub(lambda match: part(match[1].decode()), body)


def new_messages(
    asked: Sequence[_Asked],
    before: Sequence[_Asked],
    noted: Sequence[TurnMessage],
    shaped: Callable[[_Asked], TurnMessage],
) -> list[TurnMessage]:
    """Return the messages in a request that were not in the conversation's previous request.

    Args:
        asked: All messages in the request.
        before: All messages in the previous request. If `asked` does not begin with them, a new
            conversation has begun, and all messages are new.
        noted: The messages that have been recorded so far, including answers.
        shaped: Makes a `TurnMessage` from a message.
    """
    known = len(before) if list(asked[: len(before)]) == list(before) else 0
    new = [shaped(one) for one in asked[known:]]
    # Skip the last answer, which callers append to their own list of messages. It was already
    # recorded when it arrived.
    is_heard = known and new and noted
    if is_heard and (new[0].role, new[0].content) == ("assistant", noted[-1].content):
        del new[0]
    return new


def part_name(content: bytes) -> str:
    """Return the name of a part: the SHA-256 of its content, in hexadecimal."""
    return sha256(content).hexdigest()


def _answer(one: Exchange, part: Callable[[str], bytes]) -> bytes:
    if not one.is_stream or one.came.startswith(PART):
        return with_parts(one.came.encode(), part)
    try:
        return zlib.decompress(base64.b64decode(one.came))
    except zlib.error as error:
        raise ValueError(f"a stream cannot be unpacked: {error}") from error


def matters(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that can change the answer to a request.

    Args:
        headers: All headers of the request, with names in lower case.
    """
    return {name: value for name, value in headers.items() if _CHANGES_ANSWER.fullmatch(name)}


def without_model(body: bytes, name: str) -> bytes:
    """Remove `model` from a body that begins with this field and the lane's name for the model.

    Bodies that this package makes begin with their `model` if they have one. Any other body is
    returned unchanged.

    Args:
        body: The body of a request.
        name: The lane's name for the model.
    """
    own = b'{"model":%b,' % msgspec.json.encode(name)
    return b"{" + body[len(own) :] if body.startswith(own) else body


def canonical(body: bytes) -> bytes:
    """Reduce a body to a form that is the same for equal requests, regardless of the lane.

    If the body is JSON, this form has no `model`, `stream` or `stream_options`, and its fields are
    sorted by name. Otherwise, the form is the body itself. Two bodies can be compared only if both
    contain their long strings, or if both contain the names of parts instead.
    """
    try:
        asked = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    if isinstance(asked, dict):
        asked = {name: value for name, value in asked.items() if name not in _UNSENT}
    return _in_order(asked)


_in_order = msgspec.json.Encoder(order="sorted").encode


def _ends(base: bytes, body: bytes, first: int) -> tuple[int, int]:
    """Return the lengths of the common prefix and the common suffix of two bodies, in bytes.

    Both are shortened so that the bodies are cut only next to a quote or a space. Such a cut splits
    no character and no secret. A secret that is split would not be found.

    Args:
        base: The earlier body.
        body: The new body.
        first: The length of their common prefix before it is shortened.
    """
    first = max(body.rfind(b'"', 0, first), body.rfind(b" ", 0, first)) + 1
    at = len(body) - n_last(base, body, min(len(base), len(body)) - first)
    places = [place for place in (body.find(b'"', at), body.find(b" ", at)) if place >= 0]
    return first, len(body) - min(places, default=len(body))


def n_first(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two bodies, in bytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def n_last(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common suffix of two bodies, in bytes; at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
