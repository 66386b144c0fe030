"""Limits retries after failures on an instance, and allows probes while it does not answer."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.timers import Timer

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.waiting import WorkerState

SHARE, FIXED = 0.2, 10
"""The number of retries after failures on an instance is limited.

It may not exceed `SHARE` times the number of other requests to the instance, plus `FIXED`.

So retries add at most 20 % (plus ten requests) to the load on a failing provider. Without a budget,
trying every request three times would triple the load. Source: Finagle's retry budgets (20 %, and a
minimum).
"""
FIRST_PROBE_S, LONGEST_PROBE_S = 1.0, 30.0
"""After a probe fails, the next one is sent 1 s later. With each further failure, this time
doubles, up to 30 s."""


class ParkedRetry(NamedTuple):
    """A retry that is waiting for an instance's retry budget. It was requested at `came_s`."""

    worker: WorkerState
    request: LeaseRequest
    came_s: float


class RetryBudget(Timer):
    """The budget for retries after failures on one instance, shared by all workers.

    It is also a timer, which is due when a probe may be sent.

    A retry draws on the budget when it is requested, so that retries that are waiting for seats
    cannot overdraw it. A retry that is withdrawn later still counts. A retry beyond the budget is
    parked, not refused, because an unattended run should wait rather than lose a case. Parked
    retries are sent in order of arrival, in one of two ways:

    - Within the budget, when it has grown. It grows by `SHARE` with every request that is not a
      retry.
    - Beyond the budget, as a probe. Only one probe may be in flight. A probe is sent immediately
      after the instance has answered a request, or after a growing pause if the last probe failed.
      So an instance that keeps failing gets two probes a minute after a while, and an instance that
      has recovered gets all parked retries.

    Attributes:
        n_drawn: How many retries have drawn on the budget so far, excluding probes.
        parked: The parked retries, by worker and request id, in order of arrival.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_drawn = 0
        self.parked: OrderedDict[tuple[str, int], ParkedRetry] = OrderedDict()
        self._is_probing = False
        self._delay_s = FIRST_PROBE_S
        self._probe_s = -math.inf

    @property
    def next_probe_s(self) -> float | None:
        """The time of the next probe; None if no retry is parked or if a probe is in flight."""
        return self._probe_s if self.parked and not self._is_probing else None

    def draw(self, n_requests: int) -> bool:
        """Draw on the budget for a new retry, if it allows one and no other retries are parked.

        Args:
            n_requests: How many requests were sent to the instance so far, excluding retries.

        Returns:
            Whether the retry may be sent. If not, park it.
        """
        return not self.parked and self._draw(n_requests)

    def park(self, retry: ParkedRetry, now_s: float) -> None:
        """Park a retry."""
        if not self.parked and not self._is_probing and self._delay_s == FIRST_PROBE_S:
            # No probe has failed since the last answer, but another request just failed.
            self._probe_s = now_s + FIRST_PROBE_S
        self.parked[retry.worker.name, retry.request.request_id] = retry

    def take(
        self, n_requests: int, now_s: float, *, is_removed: bool = False
    ) -> tuple[ParkedRetry, bool] | None:
        """Remove and return a parked retry that may be sent now, if there is one.

        Args:
            n_requests: How many requests were sent to the instance so far, excluding retries.
            now_s: The current time.
            is_removed: Whether the instance is removed, so that all retries go to other instances.

        Returns:
            The retry, and whether it is a probe; None if no retry may be sent now.
        """
        if not self.parked:
            return None
        is_probe = False
        if not is_removed and not self._draw(n_requests):
            if self._is_probing or now_s < self._probe_s:
                return None
            is_probe = self._is_probing = True
        _, retry = self.parked.popitem(last=False)
        return retry, is_probe

    def answered(self, now_s: float) -> None:
        """Allow the next probe now, because the instance has answered a request."""
        self._delay_s = FIRST_PROBE_S
        self._probe_s = now_s

    def probe_over(self) -> None:
        """Allow the next probe, because the last one was answered or never sent."""
        self._is_probing = False

    def probe_lost(self, now_s: float) -> None:
        """Allow the next probe after a pause: the last one was sent, but its result is unknown."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s

    def probe_failed(self, now_s: float) -> None:
        """Allow the next probe after a pause, which grows with each probe that fails."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s
        self._delay_s = min(LONGEST_PROBE_S, 2.0 * self._delay_s)

    def _draw(self, n_requests: int) -> bool:
        if self.n_drawn + 1 > FIXED + SHARE * n_requests:
            return False
        self.n_drawn += 1
        return True
