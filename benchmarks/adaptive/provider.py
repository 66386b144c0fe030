"""Providers in virtual time: their capacity, their refusals, and the durations of answers."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field

from pytest_ultrapar.broker.protocol import LeaseOutcome


@dataclass(frozen=True, slots=True)
class Bears:
    """The capacity of a provider, starting at `from_s`. Infinity means unlimited.

    Attributes:
        seats: Requests in flight, >= 1.
        rate: Requests per second, limited by a token bucket.
        burst: The size of the bucket, one request or more; None means the requests of one second.
        per_minute: Requests in each clock minute, which may all come at the same time.
        refuses: Whether it refuses all requests.
        knee: The provider's new `knee`; None means no change.
    """

    from_s: float = 0.0
    seats: float = math.inf
    rate: float = math.inf
    burst: float | None = None
    per_minute: float = math.inf
    refuses: bool = False
    knee: float | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """One kind of provider.

    Attributes:
        bears: Its capacities in chronological order. The first begins at 0.
        knee: The number of requests in flight up to which an answer takes its usual time. With
            more, all answers take longer: the provider answers knee / mean per second and never
            refuses. Infinity means that there is no knee.
        sigma: Standard deviation of the logarithm of an answer's time, whose mean is one second.
        slow: Share of answers that take `slow_s` instead.
        errors: Share of requests answered with 500.
        typical_s: Mean time of an answer, excluding slow answers.
        refusal: The answer to requests beyond its capacity: 429 (`rate`) or a 503 without
            Retry-After (`overload`).
        counts_refused: Whether its rate is not a token bucket, but counts all requests of the last
            second, including refused requests, as HAProxy's `http_req_rate` does.
        refused_after_s: Seconds until a refusal arrives: the time of a round trip.
        retry_after_s: The wait that a refusal names, in seconds; None if it names no wait.
        timeout_s: Seconds after which the client gives up. The provider continues to work on the
            request.
    """

    bears: tuple[Bears, ...] = (Bears(),)
    knee: float = math.inf
    sigma: float = 0.5
    slow: float = 0.0
    slow_s: float = 8.0
    errors: float = 0.0
    typical_s: float = 1.0
    refusal: LeaseOutcome = "rate"
    counts_refused: bool = False
    refused_after_s: float = 0.05
    retry_after_s: float | None = None
    timeout_s: float = 600.0

    @property
    def mean_s(self) -> float:
        """The mean time of an answer."""
        return (1 - self.slow) * self.typical_s + self.slow * self.slow_s

    def at(self, now_s: float) -> Bears:
        """The capacity at `now_s`."""
        return next(one for one in reversed(self.bears) if one.from_s <= now_s)

    def best_per_s(self, now_s: float, most_seats: float) -> float:
        """The maximum number of answers per second for a client with this number of seats."""
        bears = self.at(now_s)
        if bears.refuses:
            return 0.0
        return min(
            bears.rate,
            bears.per_minute / 60.0,
            min(bears.seats, self.knee_at(now_s), most_seats) / self.mean_s,
        )

    def knee_at(self, now_s: float) -> float:
        """The `knee` at `now_s`: with more requests in flight, answers take longer than usual."""
        knee = self.at(now_s).knee
        return self.knee if knee is None else knee


@dataclass(slots=True)
class Serving:
    """A provider in use."""

    provider: Provider
    rng: random.Random
    in_flight: int = 0
    peak: int = 0
    _minute: int = -1
    _n_in_minute: int = 0
    _tokens: float = 1.0
    _filled_s: float = 0.0
    _came_s: deque[float] = field(default_factory=deque)

    def judge(self, now_s: float) -> LeaseOutcome:
        """The outcome of a request that arrives now: `ok`, `overload`, or the refusal."""
        bears = self.provider.at(now_s)
        is_paced = bears.rate < math.inf
        if is_paced and self.provider.counts_refused:
            self._came_s.append(now_s)
            while self._came_s[0] <= now_s - 1.0:
                self._came_s.popleft()
            if len(self._came_s) > bears.rate:
                return self.provider.refusal
        elif is_paced:
            burst = max(1.0, bears.rate) if bears.burst is None else bears.burst
            self._tokens = min(burst, self._tokens + (now_s - self._filled_s) * bears.rate)
            self._filled_s = now_s
        if bears.refuses or self.in_flight >= bears.seats:
            return self.provider.refusal
        if is_paced and not self.provider.counts_refused:
            if self._tokens < 1.0:
                return self.provider.refusal
            self._tokens -= 1.0
        if int(now_s // 60.0) != self._minute:
            self._minute, self._n_in_minute = int(now_s // 60.0), 0
        if self._n_in_minute >= bears.per_minute:
            return self.provider.refusal
        self._n_in_minute += 1
        if self.provider.errors and self.rng.random() < self.provider.errors:
            return "overload"
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return "ok"

    def takes_s(self, now_s: float) -> float:
        """The duration of the answer to the request that was just accepted, in seconds."""
        provider = self.provider
        if provider.slow and self.rng.random() < provider.slow:
            took_s = provider.slow_s
        else:
            sigma = provider.sigma
            took_s = provider.typical_s * self.rng.lognormvariate(-sigma * sigma / 2, sigma)
        return took_s * max(1.0, self.in_flight / provider.knee_at(now_s))
