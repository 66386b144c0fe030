"""The information about limits in an answer, in the same form for all APIs."""

from __future__ import annotations

from typing import Literal

import msgspec

Exceeded = Literal["rate", "tokens", "in_flight"]
"""The kind of limit that a request exceeded, according to the refusal: requests per period, tokens
per period, or requests in flight."""


class Allowance(msgspec.Struct, frozen=True, array_like=True):
    """The provider's limits, from an answer's headers. A limit is None if the headers lack it.

    Attributes:
        requests: Requests allowed per minute, > 0.
        tokens: Tokens allowed per minute, > 0.
    """

    requests: float | None = None
    tokens: float | None = None
