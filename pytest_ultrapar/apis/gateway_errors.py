"""Errors of the gateway, in the format of each API.

A client regards the gateway as its provider, and reads errors only in that provider's format.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

_ANTHROPIC = re.compile(r"/messages$")
_GEMINI = re.compile(r":\w+$")
_OF_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OF_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    504: "DEADLINE_EXCEEDED",
}
_OF_OPENAI = {429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def anthropic_error(status: int, message: str) -> bytes:
    """The body `{"type": "error", "error": {"type", "message"}}`."""
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    usual = "api_error" if is_ours else "invalid_request_error"
    error = {"type": _OF_ANTHROPIC.get(status, usual), "message": message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": None})


def gemini_error(status: int, message: str, **more: object) -> bytes:
    """The body `{"error": {"code", "message", "status"}}`, with more fields if given."""
    word = _OF_GEMINI.get(status, "UNAVAILABLE")
    error = {"code": status, "message": message, "status": word, **more}
    return msgspec.json.encode({"error": error})


def openai_error(
    status: int, message: str, *, kind: str | None, code: str | None, param: str | None = None
) -> bytes:
    """The body `{"error": {"message", "type", "param", "code"}}`; `kind` is the type, if given."""
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = kind or ("server_error" if is_ours else "invalid_request_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def refusal(path: str, status: int, message: str) -> bytes:
    """Return the body of an error.

    Args:
        path: The path of the request, which determines the format. An unknown path means
            OpenAI's format.
        status: HTTP status.
        message: One sentence for the user.
    """
    if _ANTHROPIC.search(path):
        return anthropic_error(status, message)
    if _GEMINI.search(path):
        return gemini_error(status, message)
    return openai_error(status, message, kind=_OF_OPENAI.get(status), code=_CODES.get(status))


def refusal_event(path: str, body: bytes) -> bytes:
    """Return an error as the last event of a stream that has already begun.

    Args:
        path: As in `refusal`.
        body: The error as JSON.
    """
    name = b"event: error\n" if _ANTHROPIC.search(path) else b""
    return name + b"data: " + b" ".join(body.splitlines()) + b"\n\n"
