"""What goes wrong on our side, in the words in which each API says that something went wrong.

A client asks us as if we were its provider, and reads errors in that provider's shape alone.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

_ANTHROPIC = re.compile(r"/messages$")
_GEMINI = re.compile(r":\w+$")
_OF_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_OF_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
}
_OF_OPENAI = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def refusal(path: str, status: int, message: str) -> bytes:
    """The body of an error.

    Args:
        path: What was asked: it says whose shape is understood; OpenAI's where nobody knows.
        status: HTTP status.
        message: One sentence for people.
    """
    error: dict[str, object]
    if _ANTHROPIC.search(path):
        error = {"type": _OF_ANTHROPIC.get(status, "api_error"), "message": message}
        return msgspec.json.encode({"type": "error", "error": error})
    if _GEMINI.search(path):
        word = _OF_GEMINI.get(status, "UNAVAILABLE")
        error = {"code": status, "message": message, "status": word}
        return msgspec.json.encode({"error": error})
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    error = {
        "message": message,
        "type": _OF_OPENAI.get(status, kind),
        "param": None,
        "code": _CODES.get(status),
    }
    return msgspec.json.encode({"error": error})


def refusal_event(path: str, body: bytes) -> bytes:
    """An error as an event of a stream that has begun; no event ends the stream then.

    Args:
        path: As of `refusal`.
        body: Of the error, one line of JSON.
    """
    name = b"event: error\n" if _ANTHROPIC.search(path) else b""
    return name + b"data: " + b" ".join(body.splitlines()) + b"\n\n"
