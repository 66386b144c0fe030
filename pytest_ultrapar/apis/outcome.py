"""The information in an answer about limits, in words and figures that all APIs share."""

from __future__ import annotations

from typing import Literal

import msgspec

Exceeded = Literal["rate", "tokens", "in_flight"]
"""The limit that a refusal names: requests per period, tokens per period, or requests in flight."""


class Allowance(msgspec.Struct, frozen=True, array_like=True):
    """The provider's limits in an answer's headers. None means that a limit is not in the headers.

    Attributes:
        requests: Requests allowed per minute, > 0.
        tokens: Tokens allowed per minute, > 0.
    """

    requests: float | None = None
    tokens: float | None = None
