"""A stream of server-sent events, read in pieces as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.apis.failure import Failure

_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = b"\r\n"


class EventReader:
    """Reads one stream of events; keeps no more than the event that is not complete yet.

    Comments and fields other than `data` are left out. Lines end in LF, CR or CRLF.

    Source: WHATWG HTML Living Standard, section 9.2.6, "Interpreting an event stream".
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._after_cr = False
        self._begins = True

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes, in order."""
        if self._after_cr and piece:
            # The second half of a CRLF that was cut in two.
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        events: list[bytes] = []
        for line in piece.splitlines(keepends=True):
            if line[-1] not in _LINE_ENDS:
                self._line += line
                break
            whole = self._completed(line)
            self._after_cr = line.endswith(b"\r")
            if whole:
                self._take(whole)
            elif self._data:
                events.append(self._dispatch())
        return events

    def end(self) -> list[bytes]:
        """The data of an event that the stream's end completes: the standard drops it, we do not.

        What matters is whether it can be read, and servers forget the last empty line.
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


class EventStream:
    """The events of one answer so far; see `registry.Stream`. An API says what is in an event.

    Attributes:
        done: Nothing that comes now matters: the server said that this was all, or it cannot be
            read.
        t_first_token_s: When the first content, reasoning or tool call came, by the clock of
            whoever feeds; None before.
    """

    def __init__(self) -> None:
        self.done = False
        self.t_first_token_s: float | None = None
        self._events = EventReader()
        self._failure: Failure | None = None

    def feed(self, piece: bytes, now_s: float) -> None:
        """Take the next bytes of the body, which came at `now_s`."""
        self._take_all(self._events.feed(piece), now_s)

    def end(self, now_s: float) -> None:
        """Take note that the body came to its end as HTTP has it."""
        self._take_all(self._events.end(), now_s)
        self.done = True

    def _take_all(self, events: list[bytes], now_s: float) -> None:
        for event in events:
            if self.done:
                return
            if data := event.strip():
                self._take(data, now_s)

    def _take(self, data: bytes, now_s: float) -> None:
        """What an event says; `data` is not empty and has no blanks around it."""
        raise NotImplementedError

    def _note_token(self, now_s: float) -> None:
        if self.t_first_token_s is None:
            self.t_first_token_s = now_s

    def _fail(self, failure: Failure | None) -> None:
        self._failure = failure
        self.done = True
