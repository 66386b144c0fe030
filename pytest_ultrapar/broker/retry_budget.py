"""The number of retries that an instance is sent, and the probes while it answers nothing."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.timers import Timer

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.waiting import WorkerState

SHARE, FIXED = 0.2, 10
"""Retries may be this share of an instance's requests, plus this number.

A failing provider then gets at most 1.2 times its load. Without a budget, three tries of every
request would be three times the load. Source: Finagle's retry budgets (20 %, and a minimum).
"""
FIRST_PROBE_S, LONGEST_PROBE_S = 1.0, 30.0
"""After a failed probe, the next one follows after 1, 2, 4, ... 30 s."""


class ParkedRetry(NamedTuple):
    """A retry that waits until the budget of its instance grows; it came at `came_s`."""

    worker: WorkerState
    request: LeaseRequest
    came_s: float


class RetryBudget(Timer):
    """The retries of one instance, over all processes of a run. Wakes when the next probe may go.

    A retry draws on the budget when it is requested, so retries that wait for seats cannot overdraw
    it. A retry that is withdrawn later stays drawn. A retry beyond the budget is parked, not
    refused: an unattended run should wait rather than lose a case. Parked retries go in order of
    arrival, as the budget grows:

    - by `SHARE` with every request that is not a retry.
    - by probes. One parked retry at a time may exceed the budget: immediately after the instance
      answered something, or after a growing pause if the last probe failed. So an instance that
      answers nothing gets two requests a minute, and one that has recovered gets all of them.

    Attributes:
        n_drawn: Retries drawn so far, without probes.
        parked: Retries that wait, by worker and request id, in order of arrival.
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
        """The time of the next probe; None if no retry waits for it or a probe is in flight."""
        return self._probe_s if self.parked and not self._is_probing else None

    def draw(self, n_requests: int) -> bool:
        """Draw one retry for a request that just came, if the budget allows it.

        Args:
            n_requests: Requests that the instance was sent so far, without retries.

        Returns:
            Whether it was drawn. Parked retries come first.
        """
        return not self.parked and self._draw(n_requests)

    def park(self, retry: ParkedRetry, now_s: float) -> None:
        """Park a retry."""
        if not self.parked and not self._is_probing and self._delay_s == FIRST_PROBE_S:
            # No probe has failed since the last answer, but another request has failed just now.
            self._probe_s = now_s + FIRST_PROBE_S
        self.parked[retry.worker.name, retry.request.request_id] = retry

    def take(
        self, n_requests: int, now_s: float, *, is_removed: bool = False
    ) -> tuple[ParkedRetry, bool] | None:
        """The parked retry that may go now, and whether it is a probe; or None.

        Args:
            n_requests: Requests that the instance was sent so far, without retries.
            now_s: Now.
            is_removed: Whether the instance is removed: all retries then go to other instances.
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
        """Allow the next probe now, since the instance answered something."""
        self._delay_s = FIRST_PROBE_S
        self._probe_s = now_s

    def probe_over(self) -> None:
        """Allow the next probe: the last one was answered, or never sent."""
        self._is_probing = False

    def probe_lost(self, now_s: float) -> None:
        """Allow the next probe later: the last one was sent, and its result is unknown."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s

    def probe_failed(self, now_s: float) -> None:
        """Allow the next probe later, after a longer pause each time: the last one failed."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s
        self._delay_s = min(LONGEST_PROBE_S, 2.0 * self._delay_s)

    def _draw(self, n_requests: int) -> bool:
        if self.n_drawn + 1 > FIXED + SHARE * n_requests:
            return False
        self.n_drawn += 1
        return True
