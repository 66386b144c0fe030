"""The simulated provider's randomness. It depends on the request and the seed, never on time."""

from __future__ import annotations

import hashlib
import math
import random
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Latency
    from pytest_ultrapar.simulator.persona import ChatMessage

_encode = msgspec.json.Encoder(order="sorted").encode
_standard_normal = NormalDist()
_UNIFORM_BITS = 52  # so that (n + 0.5) / 2**52 is exact, above 0 and below 1


class Draw:
    """The random values of one request.

    They depend on the model's name, but not on the instance: every lane of a model gives the same
    answer after the same time. Answer and latency are independent of each other.

    Attributes:
        name: 24 hex digits that identify these values.
    """

    __slots__ = ("_digest", "name")

    def __init__(
        self, messages: Sequence[ChatMessage], *, model: str, seed: int, request_seed: int | None
    ) -> None:
        content = _encode((model, seed, request_seed, messages))
        self._digest = hashlib.blake2b(content, digest_size=28).digest()
        self.name = self._digest[:12].hex()

    def rng(self) -> random.Random:
        """Return a new source of randomness for the persona, always with the same seed."""
        return random.Random(self._digest[12:20])

    def latency_s(self, latency: Latency) -> float:
        """Return the latency of this request in seconds, >= 0, excluding the time in a queue.

        Source: the quantile of a log-normal distribution is `median * exp(sigma * z)`, where z is
        the quantile of the standard normal distribution.
        """
        if latency.kind == "fixed":
            return latency.median_s
        n = int.from_bytes(self._digest[20:28], "big") >> (64 - _UNIFORM_BITS)
        z = _standard_normal.inv_cdf((n + 0.5) / 2**_UNIFORM_BITS)
        return latency.median_s * math.exp(latency.sigma * z)
