"""Simulates the real broker and providers in virtual time. The pool may declare wrong limits."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left
from dataclasses import dataclass
from typing import cast

from benchmarks.adaptive.provider import Provider as Played
from benchmarks.adaptive.provider import Serving
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import CLASSES, LIMITED, FailedOutcome
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import (
    Action,
    Feedback,
    Grant,
    Lease,
    LeaseOutcome,
    LeaseRequest,
)
from pytest_ultrapar.engine.retry import RetryPolicy, Tries
from pytest_ultrapar.pool.model import Instance, Key, Lane, LaneId, Limit, Model, Pool, Provider
from pytest_ultrapar.pool.settings import RateMode
from pytest_ultrapar.testing import BrokerPlay

MEAN_OVER_S = 10.0
_MODEL = "m"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one simulation.

    Attributes:
        utilisation: Answers, divided by the maximum that the provider can give.
        refused: Share of attempts that were refused for rate limits.
        n_refused_late: Refusals of requests that were sent after the first answer.
        t90_s: Seconds until the mean over ten seconds reaches 90 % of the best rate; infinity if it
            never does.
        recovery_s: The same time, counted from the last change of the provider's capacity; None
            without a change.
        peak: The maximum number of requests in flight.
        ceiling: The seats that the pool declares.
        end_s: The end of the last request.
        n_infra: The number of requests that were given up.
    """

    utilisation: float
    refused: float
    n_refused_late: int
    t90_s: float
    recovery_s: float | None
    peak: int
    ceiling: int
    attempts: int
    end_s: float
    n_infra: int


class _Job:
    """One request until its answer, or until it is given up."""

    __slots__ = ("tries",)

    def __init__(self) -> None:
        self.tries = Tries()


class LimitPlay(BrokerPlay):
    """A simulation of one provider with some lanes, and of a client that always has requests.

    Attributes:
        pool: The pool of the broker.
        serving: The provider in use; several simulations may share it.
        served_s: The times at which answers came.
        answers_s: The durations of the answers.
        n_refused: Requests that were refused for rate limits.
    """

    def __init__(
        self,
        provider: Played,
        *,
        ceiling: int,
        seed: int,
        span_s: float = 300.0,
        n_lanes: int = 1,
        stall_s: tuple[float, float] = (math.inf, 0.0),
        rate_mode: RateMode = "adaptive",
        n_requests: float = math.inf,
        qps: float | None = None,
    ) -> None:
        """Prepare a simulation.

        Args:
            provider: The real capacity.
            ceiling: Seats that the pool declares, over all lanes.
            seed: The seed for the provider, the broker and the back-offs.
            span_s: The latest end of the simulation.
            n_lanes: Lanes that share the provider. The broker does not know that they share it.
            stall_s: When the client pauses, and for how many seconds.
            rate_mode: The rate mode of the pool.
            n_requests: The simulation ends after this number of requests.
            qps: Rate that the pool declares, over all lanes; None if it declares no rate.
        """
        self.pool = _pool(ceiling, n_lanes, rate_mode, qps, provider.timeout_s)
        super().__init__(LaneBroker(self.pool, seed=seed))
        self._provider = provider
        self._ceiling = ceiling
        self._span_s = span_s
        self._stall_s = stall_s
        self.serving = Serving(provider, random.Random(seed))
        self._rng = random.Random(seed)
        self._retry = RetryPolicy()
        self._ids = itertools.count()
        self._jobs: dict[int, _Job] = {}
        self._n_left = n_requests
        self._n_open = 0
        self.served_s: list[float] = []
        self.answers_s: list[float] = []
        self._n_attempts = self.n_refused = self._n_refused_late = self._n_infra = 0
        self._peak = 0
        self._in_flight = 0
        self.connect("main")

    def run(self) -> Outcome:
        """Simulate until the span ends, or all requests have ended."""
        self.begin()
        while self._n_open:
            next_s = self.next_s()
            if next_s > self._span_s:
                break
            begin_s, for_s = self._stall_s
            if begin_s <= max(self.now_s, next_s) < begin_s + for_s:
                self.now_s = begin_s + for_s
            self.step()
        return self._outcome()

    def begin(self) -> None:
        """Request twice as many leases as there are seats."""
        for _ in range(2 * self._ceiling):
            self._next_job()

    def _next_job(self) -> None:
        if self._n_left > 0:
            self._n_left -= 1
            self._n_open += 1
            self._ask(_Job(), None)

    def _end(self, came_s: float, job: _Job, lease: Lease, outcome: LeaseOutcome) -> None:
        self._in_flight -= 1
        asked_s = self._provider.retry_after_s
        is_wordless = outcome == "overload" == self._provider.refusal and asked_s is None
        if is_wordless and lease.is_answering:
            outcome = "congestion"
        if outcome == "ok":
            self.served_s.append(came_s)
            self.answers_s.append(came_s - lease.granted_s)
        elif is_wordless or outcome == "rate":
            self.n_refused += 1
            self._n_refused_late += bool(self.served_s) and lease.granted_s > self.served_s[0]
        feedback = Feedback(
            asked_s if outcome == self._provider.refusal else None,
            is_wordless=is_wordless,
            is_own=outcome in LIMITED and job.tries.is_own(lease),
        )
        self.release("main", lease.lease_id, outcome, feedback)
        if outcome == "ok":
            self._over()
            return
        job.tries.failed.append(outcome)
        failure = Failure(cast("FailedOutcome", outcome), "", retry_after_s=feedback.retry_after_s)
        again = self._retry.decide(failure, job.tries.failed) == "again"
        if not again or job.tries.is_hopeless:
            self._n_infra += 1
            self._over()
            return
        after = lease.lane if CLASSES[outcome].budget else None
        wait_s = self._retry.wait_s(failure, job.tries, self._rng)
        if wait_s > 0:
            self.later(wait_s, self._ask, job, after)
        else:
            self._ask(job, after)

    def _over(self) -> None:
        self._n_open -= 1
        self._next_job()

    def _ask(self, job: _Job, after: LaneId | None) -> None:
        request = LeaseRequest(next(self._ids), _MODEL, opens=False, after=after)
        self._jobs[request.request_id] = job
        self.request("main", request)

    def book(self, actions: list[Action]) -> None:
        """Send each granted request to the provider."""
        for action in actions:
            job = self._jobs.pop(action.request_id)
            if not isinstance(action, Grant):
                self._n_infra += 1
                self._n_open -= 1
                continue
            self._n_attempts += 1
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
            outcome = self.serving.judge(self.now_s)
            took_s = self._provider.refused_after_s
            if outcome == "ok":
                took_s = self.serving.takes_s(self.now_s)
                self.later(took_s, self._worked)
            if took_s > self._provider.timeout_s:
                took_s, outcome = self._provider.timeout_s, "timeout"
            self.later(took_s, self._end, self.now_s + took_s, job, action.lease, outcome)

    def _worked(self) -> None:
        self.serving.in_flight -= 1

    def _outcome(self) -> Outcome:
        times = sorted(self.served_s)
        best = self.best(0.0, self._span_s)
        changes = [one.from_s for one in self._provider.bears if one.from_s > 0]
        last_s = max(changes, default=0.0)
        return Outcome(
            utilisation=len(times) / best if best else 0.0,
            refused=self.n_refused / max(1, self._n_attempts),
            n_refused_late=self._n_refused_late,
            t90_s=self._reaches(times, 0.0, changes[0] if changes else self._span_s),
            recovery_s=self._reaches(times, last_s, self._span_s) if changes else None,
            peak=self._peak,
            ceiling=self._ceiling,
            attempts=self._n_attempts,
            end_s=self.now_s,
            n_infra=self._n_infra,
        )

    def best(self, from_s: float, to_s: float) -> float:
        """The maximum number of answers that the provider can give between these two times."""
        changes = (one.from_s for one in self._provider.bears)
        edges = [from_s, *(at_s for at_s in changes if from_s < at_s < to_s), to_s]
        return sum(
            (b - a) * self._provider.best_per_s(a, self._ceiling)
            for a, b in itertools.pairwise(edges)
        )

    def _reaches(self, times: list[float], from_s: float, to_s: float) -> float:
        """Seconds from `from_s` to the start of the first ten seconds at 90 % of the best rate."""
        step_s = 0.5
        begin_s = from_s
        while begin_s + MEAN_OVER_S <= to_s:
            n = bisect_left(times, begin_s + MEAN_OVER_S) - bisect_left(times, begin_s)
            if n >= 0.9 * self.best(begin_s, begin_s + MEAN_OVER_S):
                return begin_s - from_s
            begin_s += step_s
        return math.inf


def _pool(
    ceiling: int, n_lanes: int, rate_mode: RateMode, qps: float | None, request_s: float
) -> Pool:
    lanes = []
    limits = {}
    for i in range(n_lanes):
        lane_id = LaneId(f"p/i{i}/k")
        limits[f"p/i{i}"] = Limit(
            f"p/i{i}",
            "instance",
            workers=max(1, ceiling // n_lanes),
            qps=None if qps is None else qps / n_lanes,
        )
        lanes.append(
            Lane(
                lane_id,
                "p",
                _MODEL,
                f"i{i}",
                "k",
                (f"p/i{i}",),
                orphan_grace_s=0,
                request_s=request_s,
            )
        )
    instances = tuple(Instance(f"i{i}", "m", "") for i in range(n_lanes))
    provider = Provider(
        "p", "openai", "", (Key("k"),), (Model(_MODEL, instances),), rate_mode=rate_mode
    )
    return Pool("play", "", (provider,), tuple(lanes), limits)
