"""How the server judges its callers: exact seats, and rates by windows or buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.simulator.meters import ArrivalWindow, Bucket, Meter, UnitWindow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.pool.model import Limit

SEAT_RETRY_S = 1.0
"""What a caller is told to wait when all seats are taken: nobody knows when one frees."""

Bound = Literal["workers", "qps", "rpm", "tpm"]
Rate = Literal["qps", "rpm", "tpm"]
WINDOW_S: dict[Rate, float] = {"rpm": 60.0, "qps": 1.0, "tpm": 60.0}


@dataclass(frozen=True, slots=True)
class Held:
    """What a limit holds its callers to; None is unlimited.

    Attributes:
        workers: Requests in flight.
        qps: Requests in any window of 1 s.
        rpm: Requests in any window of 60 s.
        tpm: Tokens, of prompt and completion, in any window of 60 s.
        burst: With it, `qps` and `rpm` are buckets of so many requests instead of windows.
        burst_tokens: With it, `tpm` is a bucket of so many tokens.
    """

    workers: int | None = None
    qps: float | None = None
    rpm: float | None = None
    tpm: float | None = None
    burst: int | None = None
    burst_tokens: int | None = None

    @classmethod
    def of(cls, limit: Limit) -> Held:
        """What the pool says."""
        return cls(limit.workers, limit.qps, limit.rpm, limit.tpm)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Why a request is not admitted.

    Attributes:
        limit: Name of the limit.
        bound: Which of its numbers.
        allowed: That number.
        retry_after_s: Seconds until a place frees, > 0.
    """

    limit: str
    bound: Bound
    allowed: float
    retry_after_s: float


class Gate:
    """One limit with what it has admitted so far.

    Attributes:
        counts_tokens: Whether a request's tokens must be known to admit it.
    """

    __slots__ = (
        "_by_call",
        "_by_token",
        "_meters",
        "_workers",
        "counts_tokens",
        "in_flight",
        "name",
    )

    def __init__(self, limit: Limit) -> None:
        self.name = limit.name
        self.in_flight = 0
        self._meters: dict[Rate, Meter] = {}
        held = Held.of(limit)
        self.counts_tokens = held.tpm is not None
        self.hold(held, 0.0)

    def hold(self, held: Held, now_s: float) -> None:
        """Hold callers to other numbers from now on; who is in flight stays.

        What arrived before counts where a window stays a window; a bucket begins full.
        """
        self._workers: float = math.inf if held.workers is None else held.workers
        meters: dict[Rate, Meter] = {}
        for bound, window_s in WINDOW_S.items():
            rate: float | None = getattr(held, bound)
            if rate is None:
                continue
            burst = held.burst_tokens if bound == "tpm" else held.burst
            had = self._meters.get(bound)
            if isinstance(had, Bucket) and burst is not None:
                had.change(rate, burst, now_s)
                meters[bound] = had
            elif had is not None and not isinstance(had, Bucket) and burst is None:
                had.rate = rate
                meters[bound] = had
            elif burst is not None:
                meters[bound] = Bucket(rate, window_s, burst, now_s)
            elif bound == "tpm":
                meters[bound] = UnitWindow(rate, window_s)
            else:
                meters[bound] = ArrivalWindow(rate, window_s)
        self._meters = meters
        # Tuples, since every request goes through them twice: 0.4 us for each limit less.
        self._by_call = tuple(meter for bound, meter in meters.items() if bound != "tpm")
        self._by_token = tuple(meter for bound, meter in meters.items() if bound == "tpm")

    def decide(self, now_s: float) -> Exceeded | None:
        """Why one more request has no place here now; None when it has one."""
        for meter in self._by_call:
            if meter.wait_s(now_s):
                return self._exceeded(meter, now_s)
        for meter in self._by_token:
            if meter.wait_s(now_s):
                return self._exceeded(meter, now_s)
        if self.in_flight >= self._workers:
            return Exceeded(self.name, "workers", self._workers, SEAT_RETRY_S)
        return None

    def take(self, now_s: float, n_tokens: int) -> None:
        """Admit one request."""
        self.in_flight += 1
        for meter in self._by_call:
            meter.arrive(now_s)
        for meter in self._by_token:
            meter.arrive(now_s, n_tokens)

    def free(self) -> None:
        """One admitted request has ended."""
        self.in_flight -= 1

    def meter(self, bound: Rate) -> Meter | None:
        """What counts that rate; None where it is unlimited."""
        return self._meters.get(bound)

    def _exceeded(self, meter: Meter, now_s: float) -> Exceeded:
        bound = next(bound for bound, own in self._meters.items() if own is meter)
        return Exceeded(self.name, bound, meter.rate, meter.wait_s(now_s))


class LimitPath:
    """The gates that requests of one lane pass: each takes one unit of all, or none at all."""

    __slots__ = ("counts_tokens", "gates")

    def __init__(self, gates: Iterable[Gate]) -> None:
        self.gates = tuple(gates)
        self.counts_tokens = any(gate.counts_tokens for gate in self.gates)

    def admit(self, now_s: float, n_tokens: int = 0) -> Exceeded | None:
        """None with a place taken in every gate, or the gate shut the longest with nothing taken.

        A refused request does not count in any window, so that waiting as told always helps.

        Args:
            now_s: The time.
            n_tokens: Of prompt and completion; of use only where a gate counts them.
        """
        shut = [exceeded for gate in self.gates if (exceeded := gate.decide(now_s))]
        if shut:
            return max(shut, key=lambda exceeded: exceeded.retry_after_s)
        for gate in self.gates:
            gate.take(now_s, n_tokens)
        return None

    def free(self) -> None:
        """An admitted request has ended."""
        for gate in self.gates:
            gate.free()
