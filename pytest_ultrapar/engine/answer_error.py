"""An error that comes with status 200: in the midst of a stream, or in place of a completion."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

import msgspec

from pytest_ultrapar.engine.failure import Failure, classify_status

_STATUS_OF_WORD = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "deploymentnotfound": 404,
    "model_not_found": 404,
    "overloaded_error": 529,
}
"""HTTP statuses that the words in `code` and `type` stand for."""


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None


_decoder = msgspec.json.Decoder(_Error)


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
        found = _decoder.decode(error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    code = str(found.code)
    # An int of more than 4300 digits cannot be one; three digits are all that a status has.
    if len(code) == len("500") and code.isascii() and code.isdigit() and code[0] in "45":
        return int(code)
    for word in (code, found.type or ""):
        if (status := _STATUS_OF_WORD.get(word.lower())) is not None:
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR
