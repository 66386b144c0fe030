"""`x-ratelimit-*`: what is left of a lane's limits, as OpenAI's API tells it. Pure.

Source: OpenAI's rate-limit headers: limits and what remains per minute, and the time until all of
it is back, in the notation of Go's durations (`1s`, `6m0s`, `250ms`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.simulator.limits import WINDOW_S, LimitPath, Rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.simulator.asgi import Header

_MINUTE_S = 60.0
_BOUNDS: dict[Literal["requests", "tokens"], tuple[Rate, ...]] = {
    "requests": ("rpm", "qps"),
    "tokens": ("tpm",),
}


def left_headers(path: LimitPath, now_s: float, values: Mapping[str, str]) -> tuple[Header, ...]:
    """The headers of the limit on the path of which the smallest part is left.

    Args:
        path: The lane's limits. A limit per second is told as one per minute, 60 times as large.
        now_s: The time.
        values: Sent instead of or beside the true ones; an empty value takes its header away.
    """
    told: dict[str, str] = {}
    for what, bounds in _BOUNDS.items():
        found = []
        for gate in path.gates:
            for bound in bounds:
                if (meter := gate.meter(bound)) is not None:
                    per_minute = _MINUTE_S / WINDOW_S[bound]
                    limit, left = meter.rate * per_minute, meter.left(now_s) * per_minute
                    found.append((left / limit, limit, left))
        if found:
            part, limit, left = min(found)
            told[f"x-ratelimit-limit-{what}"] = f"{math.floor(limit)}"
            told[f"x-ratelimit-remaining-{what}"] = f"{math.floor(left)}"
            told[f"x-ratelimit-reset-{what}"] = go_duration((1 - min(part, 1)) * _MINUTE_S)
    told.update(values)
    return tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items() if value
    )


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
