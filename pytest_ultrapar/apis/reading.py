"""What is read alike of all APIs' answers: JSON within bounds, counts of tokens, and errors.

An API adds the shapes that it has on the wire; that a body is bounded, mended and never believed
without need stands here once.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TypeVar

import msgspec

from pytest_ultrapar.apis.failure import Failure, classify_status
from pytest_ultrapar.apis.sanitise import MOST_OBJECTS, UNREADABLE, has_too_many_objects, sanitised

T = TypeVar("T")
NOTHING = msgspec.Raw(b"null")
"""What a field holds that is not there."""
MOST_TOKENS = 10**9
"""Larger counts of one answer are not believed: a thousand times the longest context there is, and
sums of 10^9 such counts still fit in 64 bits."""
CALL_WITHOUT_ID = "a tool call of the answer has no id, by which its result could name it"
MOST_TOOL_CALLS = 1_000
"""OpenAI allows 128 tools; a bound keeps a hostile stream from growing by calls without content."""


def decoded(content: bytes, decoder: msgspec.json.Decoder[T], noun: str) -> T | Failure:
    """An answer or an event of a stream, or what is wrong with it.

    Text that no file can hold comes back with it escaped (`sanitise.sanitised`).

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
        return malformed(f"the answer is no {noun}: {error}")


def part_of(text: msgspec.Raw, kind: type[T]) -> T | None:
    """What a part of an answer says; None where it is something else or nothing."""
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE:
        return None


def is_nothing(field: msgspec.Raw) -> bool:
    """Whether a field is not there, or null."""
    return field is NOTHING or bytes(field) == b"null"


def json_text(part: msgspec.Raw) -> str:
    """A part of an answer as the JSON that it is, mended: what is skipped is not looked at."""
    try:
        return bytes(part).decode()
    except UnicodeDecodeError:
        return (sanitised(bytes(part)) or bytes(part)).decode("utf-8", "backslashreplace")


def count(figure: msgspec.Raw) -> int | None:
    """A number of tokens; None where none is said that can be believed.

    Some gateways write 12.0, and no figure spoils an answer.
    """
    try:
        number = float(bytes(figure))
    except ValueError:
        return None
    return int(number) if 0 <= number <= MOST_TOKENS else None


def malformed(reason: str) -> Failure:
    """An answer that cannot be read: what it cost is not known."""
    return Failure("malformed", reason, maybe_billed=True)


_STATUS_OF_WORD = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "deploymentnotfound": 404,
    "model_not_found": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "timeout_error": 504,
    "overloaded_error": 529,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
    "unavailable": 503,
    "deadline_exceeded": 504,
}
"""HTTP statuses that the words in `code`, `type` and `status` stand for. Responses' words for an
image that cannot be used begin alike; the last ones are google.rpc's."""

_IMAGE_WORDS = (
    "image_",
    "invalid_image",
    "invalid_base64_image",
    "unsupported_image",
    "empty_image",
)


class _ErrorCode(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    status: str | int | None = None


_error_decoder = msgspec.json.Decoder(_ErrorCode)


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
    try:
        found = _error_decoder.decode(error)
    except UNREADABLE:
        return HTTPStatus.INTERNAL_SERVER_ERROR
    code = str(found.code)
    # An int of more than 4300 digits cannot be one; three digits are all that a status has.
    if len(code) == len("500") and code.isascii() and code.isdigit() and code[0] in "45":
        return int(code)
    for word in (code, found.type or "", str(found.status)):
        if (status := _STATUS_OF_WORD.get(word.lower())) is not None:
            return status
        if word.startswith(_IMAGE_WORDS):
            return HTTPStatus.BAD_REQUEST
    return HTTPStatus.INTERNAL_SERVER_ERROR
