"""What Gemini's resources have in common: errors, models.

Source: Gemini's API reference; google.rpc.Status and RetryInfo of googleapis' error_details.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from pytest_ultrapar.simulator.answer import Whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.simulator.api_error import ApiError
    from pytest_ultrapar.simulator.limits import Left

_encode = msgspec.json.encode
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini:
    """See `wire.resource.Api`."""

    key_header: ClassVar[bytes] = b"x-goog-api-key"

    def refusal(self, error: ApiError) -> Whole:
        """The document `{"error": {"code", "message", "status", "details"}}`.

        When to come again stands in its details; there are no headers that say so.
        """
        document: dict[str, object] = {
            "code": error.status,
            "message": error.message,
            "status": _STATUSES.get(error.status, "UNKNOWN"),
        }
        if error.retry_after_s is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            document["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after_s:.9g}s"}]
        return Whole(_encode({"error": document}), error.status)

    def overloaded(self) -> int:
        """503."""
        return 503

    def left_headers(self, left: Mapping[str, Left]) -> dict[str, str]:
        """Nothing: it never says what is left."""
        del left
        return {}

    def models(self, api_names: Sequence[str]) -> bytes:
        """One page with all of them."""
        return _encode({"models": [_model(name) for name in api_names]})

    def model(self, api_name: str) -> bytes:
        """One of them."""
        return _encode(_model(api_name))


API = Gemini()


def _model(api_name: str) -> dict[str, object]:
    return {
        "name": f"models/{api_name}",
        "version": "0",
        "displayName": api_name,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
    }
