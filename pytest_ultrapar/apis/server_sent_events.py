"""Read a stream of server-sent events in pieces, as they arrive, and mask the secrets in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.exchanges import n_first

if TYPE_CHECKING:
    from collections.abc import Callable

_BLANK_LINES = (b"\n\n", b"\r\r", b"\n\r")
"""The ends of an event. In `CRLF CRLF`, the third byte already ends it, as in `EventReader`."""
_SAME = rb"id|item_id|model|object|role|service_tier|system_fingerprint|type"
_BLANK = rb"(?:\s|data:)*+"
_FIELD = re.compile(
    rb'"(?!(?:%s)")(\w++)"%s:%s(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|(\d++))' % (_SAME, _BLANK, _BLANK),
    re.DOTALL,
)
"""A JSON field whose text may continue in the next event: its name, and its text or number. The
JSON of an event may span several lines, each of which begins with `data:`."""
_HEX = rb"[0-9a-fA-F]"
_HALF_ESCAPE = re.compile(
    rb"(?:(?<!\\)(?:\\|%%(?:25)*+5[Cc])++(?:x%(h)b?|u%(h)b{0,3}|U%(h)b{0,7})?"
    rb"|(?:&|%%(?:25)*+26|\\++(?:u00|x)26)(?:amp;)*+(?:#[xX]?%(h)b{0,6}|[a-z]{0,4})"
    rb"|(?:%%|\\++(?:u00|x)25)(?:25)*+%(h)b?)\Z" % {b"h": _HEX}
)
"""An escape, perhaps incomplete, at the end of a text: in JSON, HTML or a URL, possibly nested."""
_HALF_BYTES = 64
"""How many bytes at the end of a text are searched for an escape that is cut off."""
_CUT = b"..."
"""A mark that is put after a text if the text may continue in another event. With it, the redactor
also masks the beginning of a secret at the end of the text."""
_BEGINNING_BYTES = 96
"""How many bytes to keep from the end of a text: longer than the beginning of a secret can be, even
if it is escaped."""
_SECRET_BYTES = 4096
"""How many bytes to keep from the end of a text if a secret in it may continue: longer than a
whole secret can be."""
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
# Inside a text, a backslash precedes each quote.
_NO_CHOICE = re.compile(rb'(?<!\\)"choices"\s*:\s*\[\s*\]')
_TOOK = re.compile(rb'(?<!\\)"usage"\s*:\s*\{')
_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = b"\r\n"


class EventReader:
    """Reads one stream of events, and keeps only the incomplete event in memory.

    Comments and fields other than `data` are skipped. Lines end with LF, CR or CRLF.

    Source: WHATWG HTML Living Standard, section 9.2.6, "Interpreting an event stream".
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._after_cr = False
        self._begins = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes, in order."""
        if self._after_cr and piece:
            # This may be the second half of a CRLF that was split.
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        events: list[bytes] = []
        for line in piece.splitlines(keepends=True):
            self._after_cr = line.endswith(b"\r")
            if line[-1] not in _LINE_ENDS:
                self._line += line
                break
            whole = self._completed(line)
            if whole:
                self._take(whole)
            elif self._data:
                events.append(self._dispatch())
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last event if the stream ended without an empty line after it.

        According to the standard, such an event is discarded, but some servers forget the line.
        """
        if self._line:
            self._take(self._completed(b""))
        return [self._dispatch()] if self._data else []

    def _completed(self, end: bytes) -> bytes:
        if self._line:
            end = bytes(self._line) + end
            self._line.clear()
        if self._begins:
            self._begins = False
            end = end.removeprefix(_BOM)
        return end.rstrip(_LINE_ENDS)

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))

    def _dispatch(self) -> bytes:
        data = b"\n".join(self._data)
        self._data.clear()
        return data


class MaskedEvents:
    """Removes secrets from a stream of events, even if one is split across pieces or events.

    Each event is held back until it is complete, because no reader can use a part of an event. The
    texts of JSON fields with the same name and the same latest `index` are searched as one text
    that continues over several events. Up to 7 characters of a secret may pass before the secret is
    recognised. If an event ends within an escape after a secret, the escape is held back until it
    is complete.

    Args:
        masked: Removes secrets from bytes; returns the same object if there is no secret in it.
    """

    def __init__(self, masked: Callable[[bytes], bytes]) -> None:
        self._masked = masked
        self._held = bytearray()
        self._told: dict[tuple[bytes, bytes], bytes] = {}
        self._index = b"0"

    def feed(self, piece: bytes) -> bytes:
        """Return the events that this piece completes; may be empty."""
        held = self._held
        start = max(0, len(held) - 1)
        held += piece
        end = max(held.rfind(blank, start) for blank in _BLANK_LINES) + len(_BLANK_LINES[0])
        if end < len(_BLANK_LINES[0]):
            return b""
        if held[end - 1 : end + 1] == b"\r\n":
            # The event is complete without the LF, but some readers wait for the whole line end.
            end += 1
        events = bytes(held[:end])
        del held[:end]
        return self._masked_whole(events)

    def end(self) -> bytes:
        """Return the rest when the stream ends: some servers forget the last empty line."""
        left = bytes(self._held)
        self._held.clear()
        return self._masked_whole(left)

    def _masked_whole(self, events: bytes) -> bytes:
        told, index = self._told, self._index
        so_far: dict[tuple[bytes, bytes], bytes] = {}
        for name, text, number in _FIELD.findall(events):
            if text:
                of = (self._index, name)
                so_far[of] = (so_far.get(of) or told.get(of, b"")) + text
            elif number and name.endswith(b"index"):
                self._index = number
        said = events
        for text in so_far.values():
            said += b'"' + text + _CUT + b'"' + _without_half(text) + _CUT
        most = _BEGINNING_BYTES
        if self._masked(said) is not said:
            most = _SECRET_BYTES
            events = self._masked(self._with_texts_masked(events, index))
        for of, text in so_far.items():
            told[of] = text[-most:]
        return events

    def _with_texts_masked(self, events: bytes, index: bytes) -> bytes:
        spans: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
        for field in _FIELD.finditer(events):
            name, text, number = field.groups()
            if text:
                spans.setdefault((index, name), []).append(field.span(2))
            elif number and name.endswith(b"index"):
                index = number
        shown: dict[tuple[int, int], bytes] = {}
        for of, found in spans.items():
            texts = [events[start:end] for start, end in found]
            shown |= zip(found, self._goes_on(self._told.get(of, b""), texts), strict=True)
        pieces: list[bytes] = []
        kept_from = 0
        for (start, end), text in sorted(shown.items()):
            pieces += (events[kept_from:start], text)
            kept_from = end
        return b"".join([*pieces, events[kept_from:]])

    def _goes_on(self, before: bytes, texts: list[bytes]) -> list[bytes]:
        """Mask texts that continue `before`, a text that was already passed on."""
        whole = before + b"".join(texts)
        shown, now = map(self._shown, (before, whole))
        new = now[n_first(shown, now) :]
        alone = [self._masked(text) for text in texts]
        if b"".join(alone) == new or (
            alone != texts and _without_half(b"".join(alone)) == _without_half(new)
        ):
            return alone
        # A secret spans several texts: put the whole text into the first one.
        return [new, *[b""] * (len(texts) - 1)]

    def _shown(self, text: bytes) -> bytes:
        """The masked form of a text that may continue, without an escape cut off after a secret."""
        stem = _without_half(text)
        shown = self._masked(stem + _CUT).removesuffix(_CUT)
        is_secret = shown.rstrip()[-1:] != stem.rstrip()[-1:]
        return shown if is_secret else shown + text[len(stem) :]


def without_usage(events: bytes) -> bytes:
    """Return the events of a chat completion without the event that contains only the usage.

    Args:
        events: The bytes of consecutive events.
    """
    each = _EVENT.findall(events)
    return b"".join(one for one in each if not (_NO_CHOICE.search(one) and _TOOK.search(one)))


def _without_half(text: bytes) -> bytes:
    half = _HALF_ESCAPE.search(text, max(0, len(text) - _HALF_BYTES))
    return text if half is None else text[: half.start()]
