"""The meaning of an answer for limits: words and figures that all APIs share."""

from __future__ import annotations

from typing import Literal

import msgspec

Exceeded = Literal["rate", "tokens", "in_flight"]
"""The limit that a refusal names: requests per time, tokens per time, or requests in flight."""


class Allowance(msgspec.Struct, frozen=True, array_like=True):
    """The provider's limits in an answer's headers; None for a limit that they do not contain.

    Attributes:
        requests: Requests allowed per minute, > 0.
        tokens: Tokens allowed per minute, > 0.
    """

    requests: float | None = None
    tokens: float | None = None
