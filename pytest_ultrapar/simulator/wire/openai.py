"""The parts that OpenAI's resources have in common: errors, headers, and the list of models.

Source: OpenAI's API reference and the types of its official Python client.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from pytest_ultrapar.apis.gateway_errors import openai_error
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.api_error import millis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.api_error import ApiError

_encode = msgspec.json.encode
_KINDS = {402: "insufficient_quota", 429: "requests"}


class OpenAi:
    """The part of a `wire.resource.Resource` that OpenAI's APIs have in common."""

    key_header: ClassVar[bytes] = b"api-key"
    overloaded: ClassVar[int] = 503

    def refusal(self, error: ApiError) -> Whole:
        """Write the document `{"error": {"message", "type", "param", "code"}}`.

        Source: RFC 9110, section 10.2.3 (Retry-After in whole seconds). The server also sends
        `retry-after-ms`, as OpenAI does.
        """
        kind = error.kind or _KINDS.get(error.status)
        body = openai_error(
            error.status, error.message, kind=kind, code=error.code, param=error.param
        )
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if error.retry_after_s is not None:
            headers = (
                (b"retry-after", b"%d" % math.ceil(error.retry_after_s)),
                (b"retry-after-ms", b"%d" % millis(error.retry_after_s)),
            )
        return Whole(body, error.status, headers)


def models(api_names: Sequence[str]) -> bytes:
    """Write the list of models and deployments."""
    usual = {"object": "model", "created": 0, "owned_by": "simulated"}
    return _encode({"object": "list", "data": [{"id": name, **usual} for name in api_names]})


Count = Annotated[int, msgspec.Meta(ge=1, le=128)]
MaxTokens = Annotated[int, msgspec.Meta(ge=1)]
