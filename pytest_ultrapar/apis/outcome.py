"""What an answer means to whoever keeps to limits: words and figures that all APIs share."""

from __future__ import annotations

from typing import Literal

import msgspec

FailedOutcome = Literal[
    "rate",  # 429, 529 or 503 with Retry-After: the lane pauses
    "quota",  # no money left: the key is out
    "daily_quota",  # the day's share is used up: the key is out for the model
    "auth",  # 401, or a 400 that rejects the key: the key is out
    "forbidden",  # 403: the key is out for the model
    "not_found",  # 404: the instance is out
    "tls",  # a certificate that does not verify: the instance is out
    "connect",  # nothing listens there: the lane pauses, then is out
    "transport",  # broken after connecting
    "timeout",  # no answer in time
    "overload",  # 5xx
    "congestion",  # 503 or a refused connection from an instance that is answering others
    "malformed",  # an answer that cannot be read
    "refused",  # context length, content filter: a result of the case
    "bad_request",  # other 400, 422
]
"""How an attempt without a reply ended; `broker/failure_classes.py` says what follows from each."""
Exceeded = Literal["rate", "tokens", "in_flight"]
"""What a refusal for too much says there was too much of: requests or tokens per time, or at
once."""


class Allowance(msgspec.Struct, frozen=True, array_like=True):
    """What an answer's headers say of the limits that the provider holds us to; None: not said.

    Attributes:
        requests: Requests allowed per minute, > 0.
        requests_left: How many of them are left, >= 0.
        requests_reset_s: Seconds until all of them are there again, >= 0.
        tokens: Tokens allowed per minute, > 0.
        tokens_left: How many of them are left, >= 0.
        tokens_reset_s: Seconds until all of them are there again, >= 0.
    """

    requests: float | None = None
    requests_left: float | None = None
    requests_reset_s: float | None = None
    tokens: float | None = None
    tokens_left: float | None = None
    tokens_reset_s: float | None = None
