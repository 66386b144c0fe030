"""Whether a fault takes a request: by time, by count, by tokens, by chance. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.simulator.faults.script import Fault


class Trigger:
    """One fault with what it has counted so far.

    Attributes:
        fault: What it stands for.
        n_tokens: Tokens answered on its lanes so far.
    """

    __slots__ = ("_n_requests", "_seed", "_times", "fault", "n_tokens")

    def __init__(self, fault: Fault, seed: int) -> None:
        self.fault = fault
        self.n_tokens = 0
        self._seed = seed
        self._n_requests = 0
        self._times: Counter[str] = Counter()

    def takes(self, elapsed_s: float, request: Callable[[], str]) -> bool:
        """Whether the fault takes a request on one of its lanes; counts it either way.

        Args:
            elapsed_s: Seconds since the script's beginning.
            request: Makes a text that stands for what is asked; called only for a draw.
        """
        when = self.fault.when
        if not when.span.holds(elapsed_s):
            return False
        self._n_requests += 1
        n = self._n_requests - when.after_requests
        if n <= 0 or (when.for_requests is not None and n > when.for_requests):
            return False
        if self.n_tokens < when.after_tokens:
            return False
        return when.share >= 1 or self._draw(request()) < when.share

    def _draw(self, request: str) -> float:
        """A number in [0, 1) made of the seed, the fault, the request and how often it came.

        So the order in which requests come does not matter, and one that comes again, as a retry
        does, has a draw of its own.
        """
        self._times[request] += 1
        text = f"{self._seed}\0{self.fault.label}\0{request}\0{self._times[request]}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64
