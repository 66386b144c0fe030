"""How the server judges its callers: exact seats, sliding windows with one call of tolerance."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.pool.model import Limit

SEAT_RETRY_S = 1.0
"""What a caller is told to wait when all seats are taken: nobody knows when one frees."""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Why a request is not admitted.

    Attributes:
        limit: Name of the limit.
        bound: Which of its numbers: `workers`, `qps` or `rpm`.
        allowed: That number.
        retry_after_s: Seconds until a place frees, > 0.
    """

    limit: str
    bound: Literal["workers", "qps", "rpm"]
    allowed: float
    retry_after_s: float


class ArrivalWindow:
    """A sliding window log: at most `floor(rate) + 1` arrivals in any window.

    The one call of tolerance is for the way from sender to server: sends that keep their distance
    may arrive closer together. A window is half open, so arrivals exactly `window_s` apart never
    share one.
    """

    __slots__ = ("_arrivals_s", "_places", "_window_s")

    def __init__(self, rate: float, window_s: float) -> None:
        self._places = math.floor(rate) + 1
        self._window_s = window_s
        self._arrivals_s: deque[float] = deque()

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more arrival has a place, 0 when it has one now."""
        arrivals_s = self._arrivals_s
        while arrivals_s and arrivals_s[0] + self._window_s <= now_s:
            arrivals_s.popleft()
        if len(arrivals_s) < self._places:
            return 0.0
        return arrivals_s[0] + self._window_s - now_s

    def arrive(self, now_s: float) -> None:
        """Count one arrival."""
        self._arrivals_s.append(now_s)


class Gate:
    """One limit with what it has admitted so far."""

    __slots__ = ("_limit", "_qps", "_rpm", "_workers", "in_flight")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._workers = math.inf if limit.workers is None else limit.workers
        self._qps = None if limit.qps is None else ArrivalWindow(limit.qps, 1.0)
        self._rpm = None if limit.rpm is None else ArrivalWindow(limit.rpm, 60.0)
        self.in_flight = 0

    def decide(self, now_s: float) -> Exceeded | None:
        """Why one more request has no place here now; None when it has one."""
        limit = self._limit
        if self._rpm is not None and (wait_s := self._rpm.wait_s(now_s)):
            return Exceeded(limit.name, "rpm", limit.rpm or 0, wait_s)
        if self._qps is not None and (wait_s := self._qps.wait_s(now_s)):
            return Exceeded(limit.name, "qps", limit.qps or 0, wait_s)
        if self.in_flight >= self._workers:
            return Exceeded(limit.name, "workers", self._workers, SEAT_RETRY_S)
        return None

    def take(self, now_s: float) -> None:
        """Admit one request."""
        self.in_flight += 1
        if self._qps is not None:
            self._qps.arrive(now_s)
        if self._rpm is not None:
            self._rpm.arrive(now_s)

    def free(self) -> None:
        """One admitted request has ended."""
        self.in_flight -= 1


class LimitPath:
    """The gates that requests of one lane pass: each takes one unit of all, or none at all."""

    __slots__ = ("_gates",)

    def __init__(self, gates: Iterable[Gate]) -> None:
        self._gates = tuple(gates)

    def admit(self, now_s: float) -> Exceeded | None:
        """None with a place taken in every gate, or the gate shut the longest with nothing taken.

        A refused request does not count in any window, so that waiting as told always helps.
        """
        shut = [exceeded for gate in self._gates if (exceeded := gate.decide(now_s))]
        if shut:
            return max(shut, key=lambda exceeded: exceeded.retry_after_s)
        for gate in self._gates:
            gate.take(now_s)
        return None

    def free(self) -> None:
        """An admitted request has ended."""
        for gate in self._gates:
            gate.free()
