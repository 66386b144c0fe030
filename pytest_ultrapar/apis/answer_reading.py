"""The code with which all APIs read answers: their JSON, token counts, and errors.

Each API adds the shapes of its own answers. This module refuses answers with too many objects,
repairs the others if necessary, and checks their values.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.server_json import (
    MOST_OBJECTS,
    decode_tolerantly,
    has_too_many_objects,
    part_of,
    repaired,
)
from pytest_ultrapar.apis.server_sent_events import EventReader
from pytest_ultrapar.apis.vocabulary import status_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.apis.reply import Reply

NOTHING = msgspec.Raw(b"null")
"""The value of a missing field."""


class Answer(msgspec.Struct, omit_defaults=True):
    """The fields that any answer or event may have. The object may also be an error.

    Attributes:
        error: The field `error`, which contains the error unless the whole object is the error.
        kind: The field `type`. If the whole object is an error, `type` or `object` is "error".
        object: The field `object`: the object's kind in OpenAI's format.
        id: The id. It is not decoded, so that an odd value does not make the answer invalid. The
            same applies to `model` and `usage`.
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
"""The largest plausible token count for one answer: a thousand times the longest context. Sums of
10^9 such counts still fit in 64 bits."""
CALL_WITHOUT_ID = "a tool call in the answer has no id, so no result can refer to it"
MOST_TOOL_CALLS = 1_000
"""The maximum number of tool calls in an answer, and also of choices; OpenAI allows 128 of each. It
protects against a hostile stream of empty pieces."""


def decoded(content: bytes, decoder: msgspec.json.Decoder[T], noun: str) -> T | Failure:
    """Decode an answer or an event in a stream, or return a failure with the reason.

    Text that cannot be stored is escaped (`server_json.repaired`). Optional fields of unexpected
    types are ignored (`server_json.decode_tolerantly`).

    Args:
        content: Any bytes.
        decoder: The decoder for the expected shape.
        noun: The name of the shape, for messages.
    """
    if has_too_many_objects(content):
        return malformed(f"the answer has more than {MOST_OBJECTS} objects")
    try:
        return decoder.decode(content)
    except RecursionError:
        return malformed(f"the answer is not a valid {noun}: it is nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        whole = repaired(content)
        if whole is not None:
            return decoded(whole, decoder, noun)
        found = (
            decode_tolerantly(content, decoder)
            if isinstance(error, msgspec.ValidationError)
            else None
        )
        return malformed(f"the answer is not a valid {noun}: {error}") if found is None else found


def answered(content: bytes, decoder: msgspec.json.Decoder[A], noun: str) -> A | Failure:
    """Decode as `decoded` does, but return a failure if the answer is an error."""
    found = decoded(content, decoder, noun)
    return found if isinstance(found, Failure) else error_in(found, content) or found


def error_in(found: Answer, content: bytes) -> Failure | None:
    """Return the failure if an answer contains an error; otherwise None.

    Args:
        found: The decoded answer.
        content: The answer's bytes.
    """
    if is_error(found.error):
        return failure_in_answer(bytes(found.error))
    return failure_in_answer(content) if "error" in {found.kind, found.object} else None


_NO_ERROR = frozenset(("", "0", "0.0", "200", "none", "null", "false", "ok", "success", "no error"))
"""Values of `error` that mean no error: some gateways send this field even with valid answers."""
_LONGEST_NO_ERROR = 300


def is_error(field: msgspec.Raw) -> bool:
    """Whether the field `error` contains an error."""
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
    """Whether a field is missing or null."""
    return field is NOTHING or bytes(field) == b"null"


class Usage(dict[str, msgspec.Raw]):
    """The token counts in an answer, as undecoded JSON.

    Each count is decoded separately: gateways may write 12.0, and an odd count must not make the
    answer invalid.
    """

    @classmethod
    def of(cls, field: msgspec.Raw, name: str = "usage") -> Self:
        """Return the usage in an answer; empty if the answer contains none."""
        return cls(part_of(field, dict[str, msgspec.Raw], name) or {})

    def count(self, name: str, within: str = "") -> int | None:
        """Return a number of tokens; None if there is no plausible number.

        Args:
            name: The field that contains the number.
            within: The object in the usage that contains this field; empty if the field is in the
                usage itself.
        """
        # Many answers lack some counts. Raising an exception for each would take a third of the
        # time to read an answer.
        counts = self if not within else Usage.of(self[within], "") if within in self else Usage()
        if name not in counts:
            return None
        try:
            number = float(bytes(counts[name]))
        except ValueError:
            return None
        return int(number) if 0 <= number <= MOST_TOKENS else None

    def add(self, more: Usage) -> None:
        """Update the counts from a later event, whose counts are totals.

        A zero does not replace an earlier count, because some servers send zeros later.
        """
        for name, figure in more.items():
            if re.search(b"[1-9]", bytes(figure)) or is_nothing(self.get(name, NOTHING)):
                self[name] = figure


def malformed(reason: str) -> Failure:
    """Return the failure for an answer that cannot be read, but may have been billed."""
    return Failure("malformed", reason, maybe_billed=True)


def filtered(why: str = "") -> Failure:
    """Return the failure for an answer that a content filter stopped, with the reason if known."""
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
"""The finish reasons of answers that a content filter stopped, from the providers' documentation.
Unknown reasons are not failures."""


def broken_off(reason: str | None, why: str = "") -> Failure | None:
    """Return the failure if a generation failed or a content filter stopped it; otherwise None.

    Args:
        reason: The finish reason as the API names it.
        why: The API's explanation; may be empty.
    """
    if reason is None:
        return None
    if _FILTERED.fullmatch(reason):
        return filtered(why or ("" if reason == "content_filter" else reason))
    if _FAILED.fullmatch(reason):
        said = f"the generation failed: finish reason {reason[:40]!r}"
        return Failure("overload", said, maybe_billed=True)
    return None


class _ErrorCode(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    status: str | int | None = None


def failure_in_answer(error: bytes) -> Failure:
    """Return the failure for an error object, according to the rules for HTTP errors.

    vLLM puts the HTTP status into `code`; OpenAI puts words into `code` and `type`. An error with
    neither a status nor a known word is treated as a server error. The request may be billed,
    because the provider had begun to answer.

    Args:
        error: The object as JSON.
    """
    status = _status(error)
    failure = classify_status(status, error, None)
    message = failure.message.replace("HTTP ", "the answer contains an error, treated as HTTP ", 1)
    return replace(failure, message=message, maybe_billed=True)


def _status(error: bytes) -> int:
    found = part_of(error, _ErrorCode) or _ErrorCode()
    code = str(found.code)
    # An HTTP status has three digits. Do not convert longer texts: `int` refuses more than 4300
    # digits.
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
"""Fields with text that may continue in another event."""
_CUT = re.compile(rb"\A\\u([dD][c-fC-F]%b)|(?<!\\)((?:\\\\)*)\\u([dD][89abAB]%b)\Z" % (_HEX, _HEX))
"""Half of a surrogate pair at the beginning or end of a piece. Alone, it cannot be decoded."""
_MARK = os.urandom(8).hex()
"""Marks half of a surrogate pair until the other half arrives. It is random, so that no server can
send it."""
_HALF = re.compile(rf"{_MARK}(?:([dD][89abAB]..){_MARK}([dD][c-fC-F]..)|(....))")


def _marked(piece: re.Match[bytes]) -> bytes:
    return piece[1] + _CUT.sub(rb"\g<2>%b\g<1>\g<3>" % _MARK.encode(), piece[2])


def _whole(half: re.Match[str]) -> str:
    pair = bytes.fromhex((half[1] or "") + (half[2] or ""))
    return pair.decode("utf-16-be") or f"\\u{half[3]}"


def joined(pieces: Iterable[str]) -> str:
    """Join the pieces of a stream's text, and the halves of split characters.

    Halves without a partner are escaped.
    """
    return _HALF.sub(_whole, "".join(pieces))


class EventStream(Generic[A]):
    """The events of one answer that have arrived so far; see `registry.Stream`.

    Each API implements `_take` and `_whole`.

    Attributes:
        done: Whether the rest can be ignored: the server sent the end, or the stream is invalid.
        t_first_token_s: When the first content, reasoning or tool call arrived, on the caller's
            clock; None until then.
    """

    def __init__(self, decoder: msgspec.json.Decoder[A], noun: str) -> None:
        """Prepare to decode events as `answered` does."""
        self.done = False
        self.t_first_token_s: float | None = None
        self._decoder = decoder
        self._noun = noun
        self._events = EventReader()
        self._failure: Failure | None = None
        self._said_done = False

    def feed(self, piece: bytes, now_s: float) -> None:
        """Process the next bytes of the body, received at `now_s`."""
        for event in self._events.feed(piece):
            self.take(event, now_s)

    def end(self, now_s: float) -> None:
        """Record that the HTTP body ended properly."""
        for event in self._events.end():
            self.take(event, now_s)
        self.done = True

    def take(self, data: bytes, now_s: float) -> None:
        """Process the data of an event."""
        data = data.strip()
        if not data or self.done:
            return
        # The end of chat completions. Gateways may also add it to the streams of other APIs.
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
        """Return the reply, or a failure if the stream contained an error or was cut off."""
        found = self._whole(lane, latency_s)
        if self._failure is None:
            return found
        return replace(self._failure, came=found.came if isinstance(found, Failure) else found)

    def _take(self, event: A, now_s: float) -> None:
        """Process an event."""
        raise NotImplementedError

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        """The reply, made from all events or, after an error, from the events before the error."""
        raise NotImplementedError

    def _note_token(self, now_s: float) -> None:
        if self.t_first_token_s is None:
            self.t_first_token_s = now_s

    def _fail(self, failure: Failure) -> None:
        self._failure = failure
        self.done = True

    def _cut_off(self, came: Reply | None = None) -> Failure:
        how = "without an answer" if self.t_first_token_s is None else "before it was complete"
        return replace(malformed(f"the stream ended {how}"), came=came)
