"""What an HTTP answer that is no reply means: one table for all APIs of OpenAI's error shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from pytest_ultrapar.engine.error_said import read_error
from pytest_ultrapar.engine.foreign_text import beginning_of_bytes
from pytest_ultrapar.engine.retry_after import parse_should_retry
from pytest_ultrapar.engine.too_much import comes_back_in_s, read_excess
from pytest_ultrapar.lanes.protocol import Exceeded, LeaseOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_STATUS: dict[int, LeaseOutcome] = {
    400: "bad_request",
    401: "auth",
    402: "quota",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "overload",
    413: "bad_request",
    422: "bad_request",
    429: "rate",
    529: "rate",
}
_CONTEXT_WORDS = ("context_length_exceeded", "maximum context length", "context window")
_FILTER_WORDS = ("content_filter", "content management policy", "responsibleaipolicyviolation")
_NO_ACCESS_WORDS = ("do not have access", "does not have access", "no access to")
_KEY_CODES = frozenset({"api_key_invalid", "invalid_api_key"})
_KEY_WORDS = ("api key not valid", "api key expired")
_GATEWAY_TIMEOUTS = frozenset({504, 524})
_NO_HEADERS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that brought no reply.

    Attributes:
        outcome: What the lease is returned with.
        message: One sentence for people. May quote the server at length, and with it a secret:
            whoever shows or keeps it takes that out and cuts it afterwards (`Wire.shown`).
        refused_kind: `context_length` or `content_filter` when `outcome` is `refused`.
        retry_after_s: What the server asked for, seconds.
        maybe_billed: Whether the provider may have charged for it although no answer came.
        exceeded: Of what there was too much, with outcome `rate` or where it is wordless.
        is_final: Whether the server wants the request not to be sent again.
        is_wordless: Whether it is a 503 or a refused connection that names no time to come back:
            `congestion` where the instance answers others meanwhile.
    """

    outcome: LeaseOutcome
    message: str
    refused_kind: str | None = None
    retry_after_s: float | None = None
    maybe_billed: bool = False
    exceeded: Exceeded | None = None
    is_final: bool = False
    is_wordless: bool = False


def _of_class(status: int) -> LeaseOutcome:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "overload"
    return "bad_request" if status >= HTTPStatus.BAD_REQUEST else "malformed"


def classify_status(
    status: int,
    body: bytes,
    retry_after_s: float | None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> Failure:
    """The failure that a response other than 200 stands for.

    Args:
        status: HTTP status, not 200.
        body: The response's body. Its meaning is in the error's own code, type and message only: a
            prompt that it echoes says nothing. Its beginning is quoted.
        retry_after_s: From the headers, already validated.
        headers: The response's, with lower-case lookup.
    """
    error = read_error(body)
    words = error.text
    message = f"HTTP {status}: {beginning_of_bytes(body)}"
    if status in {400, 413, 422}:
        if any(word in words for word in _CONTEXT_WORDS):
            return Failure("refused", message, refused_kind="context_length")
        if any(word in words for word in _FILTER_WORDS):
            return Failure("refused", message, refused_kind="content_filter")
        if status == HTTPStatus.BAD_REQUEST and read_excess(body, _NO_HEADERS) == "quota":
            return Failure("quota", message)
        # Google's way to refuse a key. What stands further back may be quoted from a prompt.
        if error.codes & _KEY_CODES or error.message.startswith(_KEY_WORDS):
            return Failure("auth", message)
    outcome = _BY_STATUS.get(status)
    if outcome is None:
        # A redirect or another 2xx cannot be read; every other 4xx is our own fault.
        outcome = _of_class(status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s is not None:
        outcome = "rate"
    if outcome == "not_found" and any(word in words for word in _NO_ACCESS_WORDS):
        outcome = "forbidden"
    failure = Failure(
        outcome,
        message,
        retry_after_s=retry_after_s,
        # Whoever stood between has stopped waiting, not the model.
        maybe_billed=status in _GATEWAY_TIMEOUTS,
        is_wordless=status == HTTPStatus.SERVICE_UNAVAILABLE and outcome == "overload",
    )
    if outcome == "rate":
        failure = _sort_out(failure, body, headers)
    return _as_asked(failure, headers)


def _sort_out(failure: Failure, body: bytes, headers: Mapping[str, str]) -> Failure:
    """A refusal for too much by its cure: less of something, or another key."""
    match read_excess(body, headers):
        case None:
            return failure
        case "quota" | "daily_quota" as outcome:
            back_s = failure.retry_after_s or comes_back_in_s(body)
            return replace(failure, outcome=outcome, retry_after_s=back_s)
        case exceeded:
            return replace(failure, exceeded=exceeded)


def _as_asked(failure: Failure, headers: Mapping[str, str]) -> Failure:
    """The failure as `x-should-retry` would have it; a lane that is out stays out."""
    should_retry = parse_should_retry(headers)
    if should_retry is False:
        return replace(failure, is_final=True)
    if should_retry and failure.outcome == "bad_request":
        return replace(failure, outcome="overload")
    return failure
