"""What is read alike of all APIs' answers: JSON within bounds, counts of tokens, and errors.

An API adds the shapes that it has on the wire; that a body is bounded, mended and never believed
without need stands here once.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.apis.events import EventReader
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.sanitise import (
    MOST_OBJECTS,
    has_too_many_objects,
    part_of,
    sanitised,
    understood,
)
from pytest_ultrapar.apis.vocabulary import status_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.apis.reply import Reply

NOTHING = msgspec.Raw(b"null")
"""What a field holds that is not there."""


class Answer(msgspec.Struct, omit_defaults=True):
    """The shape of an answer or of an event, in the place of which an error may come.

    Attributes:
        error: The error, where it is a field.
        kind: `type`; it or `object` is "error" where all of it is one.
        id: Unread, as the next two: a server that counts its answers has answered all the same.
    """

    error: msgspec.Raw = NOTHING
    kind: str | None = msgspec.field(default=None, name="type")
    object: str | None = None
    id: msgspec.Raw = NOTHING
    model: msgspec.Raw = NOTHING
    usage: msgspec.Raw = NOTHING


T = TypeVar("T")
A = TypeVar("A", bound=Answer)
MOST_TOKENS = 10**9
"""Larger counts of one answer are not believed: a thousand times the longest context there is, and
sums of 10^9 such counts still fit in 64 bits."""
CALL_WITHOUT_ID = "a tool call of the answer has no id, by which its result could name it"
MOST_TOOL_CALLS = 1_000
"""Of choices, too: OpenAI allows 128 of either. A bound keeps a hostile stream from growing by what
has no content."""


def decoded(content: bytes, decoder: msgspec.json.Decoder[T], noun: str) -> T | Failure:
    """An answer or an event of a stream, or what is wrong with it.

    Text that no file can hold comes back with it escaped (`sanitise.sanitised`); side fields of odd
    types are unknown (`sanitise.understood`).

    Args:
        content: Of any kind.
        decoder: Of its shape.
        noun: What it should be, for people.
    """
    if has_too_many_objects(content):
        return malformed(f"the answer holds more than {MOST_OBJECTS} objects")
    try:
        return decoder.decode(content)
    except RecursionError:
        return malformed(f"the answer is no {noun}: it is nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        whole = sanitised(content)
        if whole is not None:
            return decoded(whole, decoder, noun)
        found = understood(content, decoder) if isinstance(error, msgspec.ValidationError) else None
        return malformed(f"the answer is no {noun}: {error}") if found is None else found


def answered(content: bytes, decoder: msgspec.json.Decoder[A], noun: str) -> A | Failure:
    """As `decoded`, and the failure for which an error stands that came instead."""
    found = decoded(content, decoder, noun)
    return found if isinstance(found, Failure) else error_in(found, content) or found


def error_in(found: Answer, content: bytes) -> Failure | None:
    """The failure for which an error in an answer stands, if it has one.

    Args:
        found: The answer.
        content: As it came.
    """
    if is_error(found.error):
        return failure_in_answer(bytes(found.error))
    return failure_in_answer(content) if "error" in {found.kind, found.object} else None


_NO_ERROR = frozenset(("", "0", "0.0", "200", "none", "null", "false", "ok", "success", "no error"))
"""Gateways leave the field in a good answer, and write it as their language writes nothing."""
_LONGEST_NO_ERROR = 300


def is_error(field: msgspec.Raw) -> bool:
    """Whether the field for an error holds one."""
    if is_nothing(field):
        return False
    held = bytes(field)
    said = part_of(held, object) if len(held) <= _LONGEST_NO_ERROR else held
    return said is None or not _is_no_error(said)


def _is_no_error(said: object) -> bool:
    if isinstance(said, dict | list):
        return all(map(_is_no_error, said.values() if isinstance(said, dict) else said))
    return str(said).strip().lower() in _NO_ERROR


def is_nothing(field: msgspec.Raw) -> bool:
    """Whether a field is not there, or null."""
    return field is NOTHING or bytes(field) == b"null"


class Usage(dict[str, msgspec.Raw]):
    """What an API counted, unread: some gateways write 12.0, and no figure spoils an answer."""

    @classmethod
    def of(cls, field: msgspec.Raw, name: str = "usage") -> Self:
        """What an answer took; empty: it does not say."""
        return cls(part_of(field, dict[str, msgspec.Raw], name) or {})

    def count(self, name: str, within: str = "") -> int | None:
        """A number of tokens; None where none is said that can be believed.

        Args:
            name: Of the number.
            within: The field of the usage that has it; empty: none, the usage itself.
        """
        # Many answers lack some, and an exception for each takes a third of reading one.
        counts = self if not within else Usage.of(self[within], "") if within in self else Usage()
        if name not in counts:
            return None
        try:
            number = float(bytes(counts[name]))
        except ValueError:
            return None
        return int(number) if 0 <= number <= MOST_TOKENS else None

    def add(self, more: Usage) -> None:
        """Take a later event's counts, which are totals: zeros, as some end with, say nothing."""
        for name, figure in more.items():
            if re.search(b"[1-9]", bytes(figure)) or is_nothing(self.get(name, NOTHING)):
                self[name] = figure


def malformed(reason: str) -> Failure:
    """An answer that cannot be read: what it cost is not known."""
    return Failure("malformed", reason, maybe_billed=True)


def filtered(why: str = "") -> Failure:
    """An answer that the provider stopped in the middle, and why if it says so."""
    reason = "the provider's content filter stopped the answer" + (f": {why}" if why else "")
    return Failure("refused", reason, "content_filter")


_FAILED = re.compile(
    # OpenRouter, vLLM, SGLang; Cohere; Zhipu; DeepSeek; Gemini.
    r"(?is:.*(?:error|abort|exception|(?<![a-z])oom(?![a-z])).*"
    r"|(?:\w+_)?(?:fail(?:ed|ure)?|cancell?ed|timeout)"
    r"|insufficient_system_resource|malformed_response)|OTHER"
)
_FILTERED = re.compile(
    # Gemini, also as "content_filter: SAFETY"; Zhipu; Anthropic; Bedrock; Cohere; Vertex.
    r"(?i:content[-_]?filter(?:ed)?\b.*|(?:image_)?(?:safety|recitation|prohibited_content)"
    r"|blocklist|spii|sensitive|refusal|guardrail_intervened|error_toxic|model_armor)|LANGUAGE"
)
"""Their owners' pages name them. An unknown word says nothing of the answer."""


def broken_off(reason: str | None, why: str = "") -> Failure | None:
    """The failure of a generation that came to no end of its own; None: the answer stands.

    Args:
        reason: For the end, in the API's own word.
        why: What else it says of that.
    """
    if reason is None:
        return None
    if _FILTERED.fullmatch(reason):
        return filtered(why or ("" if reason == "content_filter" else reason))
    if _FAILED.fullmatch(reason):
        said = f"the generation failed: it ended with {reason[:40]!r}"
        return Failure("overload", said, maybe_billed=True)
    return None


class _ErrorCode(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    status: str | int | None = None


def failure_in_answer(error: bytes) -> Failure:
    """The failure that an error object stands for, by the rules for HTTP errors.

    vLLM puts the HTTP status into `code`, OpenAI a word there and into `type`; what says neither is
    an error of the server. It may have been billed, since the provider had begun to answer.

    Args:
        error: The object as JSON.
    """
    status = _status(error)
    failure = classify_status(status, error, None)
    message = failure.message.replace("HTTP ", "an error in the answer, as HTTP ", 1)
    return replace(failure, message=message, maybe_billed=True)


def _status(error: bytes) -> int:
    found = part_of(error, _ErrorCode) or _ErrorCode()
    code = str(found.code)
    # An int of more than 4300 digits cannot be one; three digits are all that a status has.
    if len(code) == len("500") and code.isascii() and code.isdigit() and code[0] in "45":
        return int(code)
    known = map(status_of, (code, found.type or "", str(found.status)))
    return next(filter(None, known), HTTPStatus.INTERNAL_SERVER_ERROR)


_HEX = rb"[0-9a-fA-F]{2}"
_PIECE = re.compile(
    rb'("(?:content|reasoning(?:_content)?|refusal|text|arguments|delta|thinking|partial_json)"'
    rb'\s*:\s*")([^"\\]*+(?:\\.[^"\\]*+)*+)',
    re.DOTALL,
)
"""What may go on in another event, wherever it comes."""
_CUT = re.compile(rb"\A\\u([dD][c-fC-F]%b)|(?<!\\)((?:\\\\)*)\\u([dD][89abAB]%b)\Z" % (_HEX, _HEX))
"""Half a surrogate pair at the beginning of a piece or at its end: no text can hold it."""
_MARK = os.urandom(8).hex()
"""What no server can know stands before a half until its other half is here."""
_HALF = re.compile(rf"{_MARK}(?:([dD][89abAB]..){_MARK}([dD][c-fC-F]..)|(....))")


def _marked(piece: re.Match[bytes]) -> bytes:
    return piece[1] + _CUT.sub(rb"\g<2>%b\g<1>\g<3>" % _MARK.encode(), piece[2])


def _whole(half: re.Match[str]) -> str:
    pair = bytes.fromhex((half[1] or "") + (half[2] or ""))
    return pair.decode("utf-16-be") or f"\\u{half[3]}"


def joined(pieces: Iterable[str]) -> str:
    """The pieces of a stream's text as one: characters that were cut are whole, halves shown."""
    return _HALF.sub(_whole, "".join(pieces))


class EventStream(Generic[A]):
    """The events of one answer so far; see `registry.Stream`. An API says what follows from each.

    Attributes:
        done: Nothing that comes now matters: the server said that this was all, or it cannot be
            read.
        t_first_token_s: When the first content, reasoning or tool call came, by the clock of
            whoever feeds; None before.
    """

    def __init__(self, decoder: msgspec.json.Decoder[A], noun: str) -> None:
        """Wait for events, which are read as by `answered`."""
        self.done = False
        self.t_first_token_s: float | None = None
        self._decoder = decoder
        self._noun = noun
        self._events = EventReader()
        self._failure: Failure | None = None
        self._said_done = False

    def feed(self, piece: bytes, now_s: float) -> None:
        """Take the next bytes of the body, which came at `now_s`."""
        for event in self._events.feed(piece):
            self.take(event, now_s)

    def end(self, now_s: float) -> None:
        """Take note that the body came to its end as HTTP has it."""
        for event in self._events.end():
            self.take(event, now_s)
        self.done = True

    def take(self, data: bytes, now_s: float) -> None:
        """Take the data of an event."""
        data = data.strip()
        if not data or self.done:
            return
        # Chat completions end so; gateways may add it to streams of other APIs.
        if data == b"[DONE]":
            self._said_done = self.done = True
            return
        if b"\\ud" in data or b"\\uD" in data:
            data = _PIECE.sub(_marked, data)
        event = answered(data, self._decoder, self._noun)
        if isinstance(event, Failure):
            self._fail(event)
        else:
            self._take(event, now_s)

    def reply(self, lane: str, latency_s: float) -> Reply | Failure:
        """The reply, or why there is none: an error in the stream, or an end before its end."""
        found = self._whole(lane, latency_s)
        if self._failure is None:
            return found
        return replace(self._failure, came=found.came if isinstance(found, Failure) else found)

    def _take(self, event: A, now_s: float) -> None:
        """What an event says."""
        raise NotImplementedError

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in all events that came, before an error if there was one."""
        raise NotImplementedError

    def _note_token(self, now_s: float) -> None:
        if self.t_first_token_s is None:
            self.t_first_token_s = now_s

    def _fail(self, failure: Failure) -> None:
        self._failure = failure
        self.done = True

    def _cut_off(self, came: Reply | None = None) -> Failure:
        how = "without an answer" if self.t_first_token_s is None else "before its end"
        return replace(malformed(f"the stream ended {how}"), came=came)
