"""What an HTTP answer that is no reply means: one table for all APIs of OpenAI's error shape."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from pytest_ultrapar.lanes.protocol import LeaseOutcome

_BY_STATUS: dict[int, LeaseOutcome] = {
    400: "bad_request",
    401: "auth",
    402: "quota",
    403: "auth",
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
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that brought no reply.

    Attributes:
        outcome: What the lease is returned with.
        message: One sentence for people; may quote the server, never a secret.
        refused_kind: `context_length` or `content_filter` when `outcome` is `refused`.
        retry_after_s: What the server asked for, seconds.
        maybe_billed: Whether the provider may have charged for it although no answer came.
    """

    outcome: LeaseOutcome
    message: str
    refused_kind: str | None = None
    retry_after_s: float | None = None
    maybe_billed: bool = False


def _of_class(status: int) -> LeaseOutcome:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "overload"
    return "bad_request" if status >= HTTPStatus.BAD_REQUEST else "malformed"


def classify_status(status: int, body: bytes, retry_after_s: float | None) -> Failure:
    """The failure that a response other than 200 stands for.

    Args:
        status: HTTP status, not 200.
        body: The response's body; only its beginning is looked at and quoted.
        retry_after_s: From the headers, already validated.
    """
    text = body[:4096].decode("utf-8", "replace")
    words = text.lower()
    message = f"HTTP {status}: {' '.join(text.split())[:_SHOWN_CHARACTERS]}"
    if status in {400, 413, 422}:
        if any(word in words for word in _CONTEXT_WORDS):
            return Failure("refused", message, refused_kind="context_length")
        if any(word in words for word in _FILTER_WORDS):
            return Failure("refused", message, refused_kind="content_filter")
    if status == HTTPStatus.TOO_MANY_REQUESTS and "insufficient_quota" in words:
        return Failure("quota", message)
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s is not None:
        return Failure("rate", message, retry_after_s=retry_after_s)
    outcome = _BY_STATUS.get(status)
    if outcome is None:
        # A redirect or another 2xx cannot be read; every other 4xx is our own fault.
        outcome = _of_class(status)
    return Failure(outcome, message, retry_after_s=retry_after_s)
