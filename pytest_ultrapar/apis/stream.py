"""A chat completion that comes in pieces, put together to the reply that it would be whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import (
    Choice,
    Usage,
    WireMessage,
    WireToolCall,
    error_of,
    parse_completion,
    reply_of,
)
from pytest_ultrapar.apis.reply import Reply, ToolCall

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import LaneId


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


_LAST = b"[DONE]"
_MOST_TOOL_CALLS = 1_000
"""OpenAI allows 128 tools; a bound keeps a hostile stream from growing by calls without content."""


@dataclass(slots=True)
class _Call:
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ChatStream:
    """The pieces of one answer so far; fed by whoever reads it, until `done` or its end.

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
        self._texts: list[str] = []
        self._reasonings: list[str] = []
        self._refusals: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._failure: Failure | None = None
        self._has_answer = False
        self._said_done = False

    def feed(self, piece: bytes, now_s: float) -> None:
        """Take the next bytes of the body, which came at `now_s`."""
        self._take_all(self._events.feed(piece), now_s)

    def end(self, now_s: float) -> None:
        """Take note that the body came to its end as HTTP has it."""
        self._take_all(self._events.end(), now_s)
        self.done = True

    def reply(self, lane: LaneId, latency_s: float) -> Reply | Failure:
        """The reply, or why there is none: an error in the stream, or an end before its end."""
        if self._failure is not None:
            return self._failure
        # Some servers forget `[DONE]`, some a reason for the end; without both it was cut off.
        if not self._has_answer or not (self._said_done or self._finish_reason):
            came = "before its end" if self._has_answer else "without an answer"
            return Failure("malformed", f"the stream ended {came}", maybe_billed=True)
        message = WireMessage(
            content="".join(self._texts),
            reasoning_content="".join(self._reasonings) or None,
            refusal="".join(self._refusals) or None,
        )
        calls = tuple(
            ToolCall(call.call_id, call.name, "".join(call.arguments))
            for _, call in sorted(self._calls.items())
        )
        whole = Choice(message=message, finish_reason=self._finish_reason)
        return reply_of(whole, calls, self._usage, lane, latency_s)

    def _take_all(self, events: list[bytes], now_s: float) -> None:
        for data in events:
            if self.done:
                return
            if data.strip() == _LAST:
                self._said_done = self.done = True
            elif data.strip():
                self._take(data, now_s)

    def _take(self, data: bytes, now_s: float) -> None:
        completion = parse_completion(data)
        failure = completion if isinstance(completion, Failure) else error_of(completion, data)
        if failure is not None or isinstance(completion, Failure):
            self._fail(failure)
            return
        self._usage = completion.counted or self._usage
        for choice in completion.choices or ():
            if not choice.index:
                self._take_choice(choice, now_s)

    def _take_choice(self, choice: Choice, now_s: float) -> None:
        self._has_answer = True
        self._finish_reason = choice.finish_reason or self._finish_reason
        delta = choice.delta or choice.message
        if delta is None:
            return
        reasoning = delta.reasoning_content or delta.reasoning
        pairs = (
            (self._texts, delta.text),
            (self._reasonings, reasoning),
            (self._refusals, delta.refusal),
        )
        for pieces, piece in pairs:
            if piece:
                pieces.append(piece)
                self._note_token(now_s)
        for call in delta.tool_calls or ():
            self._take_call(call)
            self._note_token(now_s)

    def _take_call(self, piece: WireToolCall) -> None:
        index = piece.index
        if index is None:
            # Servers that number no calls send each whole, or its further pieces without an id.
            last = max(self._calls, default=-1)
            index = last + 1 if piece.id or last < 0 else last
        if index not in self._calls and len(self._calls) >= _MOST_TOOL_CALLS:
            reason = f"the stream has more than {_MOST_TOOL_CALLS} tool calls"
            self._fail(Failure("malformed", reason, maybe_billed=True))
            return
        call = self._calls.setdefault(index, _Call())
        call.call_id = call.call_id or piece.id or ""
        call.name = call.name or piece.function.name or ""
        if arguments := piece.function.arguments_text:
            call.arguments.append(arguments)

    def _note_token(self, now_s: float) -> None:
        if self.t_first_token_s is None:
            self.t_first_token_s = now_s

    def _fail(self, failure: Failure | None) -> None:
        self._failure = failure
        self.done = True
