"""What Anthropic's resources have in common: errors, headers, models.

Source: Anthropic's API reference and the types of its official Python client.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import msgspec

from pytest_ultrapar.simulator.answer import Whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.simulator.api_error import ApiError
    from pytest_ultrapar.simulator.limits import Left

_encode = msgspec.json.encode
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SERVERS_FAULT = 500


class Anthropic:
    """See `wire.resource.Api`."""

    key_header: ClassVar[bytes] = b"x-api-key"

    def refusal(self, error: ApiError) -> Whole:
        """The document `{"type": "error", "error": {"type", "message"}}`."""
        usual = "api_error" if error.status >= _SERVERS_FAULT else "invalid_request_error"
        said = {"type": _KINDS.get(error.status, usual), "message": error.message}
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if error.retry_after_s is not None:
            headers = ((b"retry-after", b"%d" % math.ceil(error.retry_after_s)),)
        body = _encode({"type": "error", "error": said, "request_id": None})
        return Whole(body, error.status, headers)

    def overloaded(self) -> int:
        """529."""
        return 529

    def left_headers(self, left: Mapping[str, Left]) -> dict[str, str]:
        """`anthropic-ratelimit-requests-limit` and its like, with the time of the reset."""
        told = {}
        for what, one in left.items():
            reset = datetime.now(UTC) + timedelta(seconds=one.reset_s)
            told[f"anthropic-ratelimit-{what}-limit"] = f"{math.floor(one.limit)}"
            told[f"anthropic-ratelimit-{what}-remaining"] = f"{math.floor(one.left)}"
            told[f"anthropic-ratelimit-{what}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
        return told

    def models(self, api_names: Sequence[str]) -> bytes:
        """One page with all of them."""
        return _encode(
            {
                "data": [_model(name) for name in api_names],
                "has_more": False,
                "first_id": api_names[0] if api_names else None,
                "last_id": api_names[-1] if api_names else None,
            }
        )

    def model(self, api_name: str) -> bytes:
        """One of them."""
        return _encode(_model(api_name))


API = Anthropic()


def _model(api_name: str) -> dict[str, object]:
    return {
        "type": "model",
        "id": api_name,
        "display_name": api_name,
        "created_at": "1970-01-01T00:00:00Z",
    }
