"""What OpenAI's resources have in common: errors, headers, models, and what a request may ask for.

Source: OpenAI's API reference and the types of its official Python client.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from pytest_ultrapar.apis.refusal import openai_error
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.api_error import ApiError, millis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.simulator.exchange import OfferedFunction
    from pytest_ultrapar.simulator.limits import Left

_encode = msgspec.json.encode
_KINDS = {402: "insufficient_quota", 429: "requests"}


class OpenAi:
    """The half of a `wire.resource.Resource` that all of OpenAI's have in common."""

    key_header: ClassVar[bytes] = b"api-key"
    overloaded: ClassVar[int] = 503

    def refusal(self, error: ApiError) -> Whole:
        """The document `{"error": {"message", "type", "param", "code"}}`.

        Source: RFC 9110, section 10.2.3 (Retry-After in whole seconds); `retry-after-ms` as OpenAI
        sends it.
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

    def left_headers(self, left: Mapping[str, Left]) -> dict[str, str]:
        """`x-ratelimit-limit-requests` and its like."""
        told = {}
        for what, one in left.items():
            told[f"x-ratelimit-limit-{what}"] = f"{math.floor(one.limit)}"
            told[f"x-ratelimit-remaining-{what}"] = f"{math.floor(one.left)}"
            told[f"x-ratelimit-reset-{what}"] = go_duration(one.reset_s)
        return told


def models(api_names: Sequence[str]) -> bytes:
    """The list of models and deployments."""
    usual = {"object": "model", "created": 0, "owned_by": "simulated"}
    return _encode({"object": "list", "data": [{"id": name, **usual} for name in api_names]})


def go_duration(seconds: float) -> str:
    """Seconds as `1h2m3.5s`, `1m0s`, `3s`, `250ms` or `0s`, whole milliseconds rounded up."""
    millis = math.ceil(seconds * 1000)
    if millis < 1000:  # noqa: PLR2004 - a second
        return f"{millis}ms" if millis else "0s"
    minutes, millis = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{millis / 1000:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


Count = Annotated[int, msgspec.Meta(ge=1, le=128)]
MaxTokens = Annotated[int, msgspec.Meta(ge=1)]


def stops(stop: str | list[str]) -> tuple[str, ...]:
    """The texts before which an answer ends; an empty one ends nothing."""
    return tuple(text for text in ([stop] if isinstance(stop, str) else stop) if text)


def chosen(offered: Sequence[OfferedFunction], named: str | None) -> OfferedFunction | ApiError:
    """The function of that name, or the first where any will do."""
    for function in offered:
        if named is None or function.name == named:
            return function
    return ApiError.bad_request(
        "`tool_choice` asks for a function that `tools` does not have", param="tool_choice"
    )
