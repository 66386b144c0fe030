"""What an answer means to whoever keeps to limits: words and figures that all APIs share."""

from __future__ import annotations

from typing import Literal

import msgspec

Exceeded = Literal["rate", "tokens", "in_flight"]
"""What a refusal for too much says there was too much of: requests or tokens per time, or at
once."""


class Allowance(msgspec.Struct, frozen=True, array_like=True):
    """What an answer's headers say of the limits that the provider holds us to; None: not said.

    Attributes:
        requests: Requests allowed per minute, > 0.
        tokens: Tokens allowed per minute, > 0.
    """

    requests: float | None = None
    tokens: float | None = None
