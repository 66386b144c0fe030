"""Refusals, independent of the wire format of an API."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.simulator.limits import SEAT_RETRY_S, Exceeded

_CODES = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    403: "permission_denied",
    404: "model_not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """A response with a status other than 200.

    Attributes:
        message: A readable message, which never contains a token.
        code: The exact error, in OpenAI's words.
        param: The field in the request that is wrong.
        retry_after_s: Seconds until a retry makes sense, > 0; None means that the response does not
            say how long to wait.
        kind: The class of the error, in OpenAI's words; None means the usual class for the status.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    kind: str | None = None

    @classmethod
    def of_status(cls, status: int, message: str) -> ApiError:
        """Return the usual refusal with this status."""
        retry_after_s = SEAT_RETRY_S if status == 429 else None  # noqa: PLR2004 - a status
        return cls(status, message, _CODES.get(status), retry_after_s=retry_after_s)

    @classmethod
    def over_limit(cls, exceeded: Exceeded) -> ApiError:
        """Return a 429 that names the limit and the wait."""
        kind = LIMIT_KINDS[exceeded.bound]
        if kind.is_daily:
            what = f"{kind.counts} per day ({kind.word.upper()})"
        else:
            what = kind.within if kind.counts == "tokens" else f"requests {kind.within}"
        message = (
            f"Rate limit reached for {exceeded.limit}: {exceeded.allowed:g} {what}. "
            f"Please try again in {millis(exceeded.retry_after_s)}ms."
        )
        return cls(
            429,
            message,
            "rate_limit_exceeded",
            retry_after_s=exceeded.retry_after_s,
            kind="tokens" if kind.counts == "tokens" else None,
        )


class RefusedError(Exception):
    """The server refuses the request.

    Attributes:
        error: The error to send.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def refuse(message: str, *, param: str | None = None) -> NoReturn:
    """Answer with 400: the request is malformed, or asks for something that does not exist.

    Raises:
        RefusedError: Always.
    """
    raise RefusedError(ApiError(400, message, param=param))


def refuse_field(name: str) -> NoReturn:
    """Answer with 400: the simulated provider does not support this field.

    Raises:
        RefusedError: Always.
    """
    refuse(f"`{name}` is not supported by the simulated provider", param=name)


def millis(seconds: float) -> int:
    """Convert seconds to whole milliseconds, rounded up; the minimum is one."""
    return max(1, math.ceil(seconds * 1000))
