"""Refusals in the shape that OpenAI's API and its likes give them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.simulator.limits import SEAT_RETRY_S, Exceeded

_encode = msgspec.json.encode
_KINDS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """An answer other than 200.

    Attributes:
        message: For people; never holds a token.
        retry_after_s: Seconds, > 0, sent in both headers that clients know; None sends neither.
        kind: The document's `type`; None takes what is usual for the status.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    kind: str | None = None

    @classmethod
    def of_status(cls, status: int, message: str) -> ApiError:
        """The refusal that this status usually is."""
        retry_after_s = SEAT_RETRY_S if status == 429 else None  # noqa: PLR2004 - a status
        return cls(status, message, _kind(status)[1], retry_after_s=retry_after_s)

    @classmethod
    def bad_request(cls, message: str, *, param: str | None = None) -> ApiError:
        """400: the request cannot be read as one."""
        return cls(400, message, param=param)

    @classmethod
    def over_limit(cls, exceeded: Exceeded) -> ApiError:
        """429 that says which limit, and when a place frees."""
        kind = LIMIT_KINDS[exceeded.bound]
        if kind.is_daily:
            what = f"{kind.counts} per day ({kind.word.upper()})"
        else:
            what = kind.within if kind.counts == "tokens" else f"requests {kind.within}"
        message = (
            f"Rate limit reached for {exceeded.limit}: {exceeded.allowed:g} {what}. "
            f"Please try again in {_millis(exceeded.retry_after_s)}ms."
        )
        return cls(
            429,
            message,
            "rate_limit_exceeded",
            retry_after_s=exceeded.retry_after_s,
            kind="tokens" if kind.counts == "tokens" else None,
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers beyond those of every answer.

        Source: RFC 9110, section 10.2.3 (whole seconds); `retry-after-ms` as OpenAI sends it.
        """
        if self.retry_after_s is None:
            return []
        return [
            (b"retry-after", b"%d" % math.ceil(self.retry_after_s)),
            (b"retry-after-ms", b"%d" % _millis(self.retry_after_s)),
        ]

    def body(self) -> bytes:
        """The JSON document `{"error": {"message", "type", "param", "code"}}`."""
        error = {
            "message": self.message,
            "type": self.kind or _kind(self.status)[0],
            "param": self.param,
            "code": self.code,
        }
        return _encode({"error": error})


def _kind(status: int) -> tuple[str, str | None]:
    server_fault = status >= 500  # noqa: PLR2004 - the class of statuses
    fallback = ("server_error" if server_fault else "invalid_request_error", None)
    return _KINDS.get(status, fallback)


def _millis(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))
