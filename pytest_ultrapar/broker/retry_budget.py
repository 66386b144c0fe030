"""How many retries an instance is sent, and which of them go when it answers nothing."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.wakes import Wake

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.broker.waiting import WorkerState

SHARE, FIXED = 0.2, 10
"""Retries may be this share of an instance's requests, and this many more.

A provider that fails is then loaded with at most 1.2 times its work; without a bound, three tries
of every request would be three times. Source: Finagle's retry budgets (20 %, and a minimum).
"""
FIRST_PROBE_S, LONGEST_PROBE_S = 1.0, 30.0
"""A probe that failed is followed by the next one after 1, 2, 4, ... 30 s."""


class ParkedRetry(NamedTuple):
    """A retry that waits until its instance's budget has grown; it came at `came_s`."""

    worker: WorkerState
    request: LeaseRequest
    came_s: float


class RetryBudget(Wake):
    """The retries of one instance, over all processes of a run. Wakes when the next probe may go.

    A retry draws on the budget when it is asked for, so that any number of retries that wait for a
    seat cannot overdraw; one that is withdrawn afterwards stays drawn. A retry beyond the budget is
    parked, not refused: a run that nobody watches would rather wait than lose a case. Parked
    retries go in the order in which they came, as soon as the budget has grown:

    - with every request that is no retry, by `SHARE`;
    - by probes. One parked retry at a time goes beyond the budget: at once after the instance
      answered something, after a growing pause when the last probe failed. So an instance that
      answers nothing gets two requests a minute, and one that has recovered gets all of them.

    Attributes:
        n_drawn: Retries drawn so far, probes left out.
        parked: Retries that wait, by worker and request id, first come first.
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
        """When the next probe may go; None while nobody waits for one, or one is out."""
        return self._probe_s if self.parked and not self._is_probing else None

    def draw(self, n_requests: int) -> bool:
        """Take one retry for a request that was just made, if there is one.

        Args:
            n_requests: Requests that the instance has been sent so far, retries left out.

        Returns:
            Whether there was one that nobody else waits for.
        """
        return not self.parked and self._draw(n_requests)

    def park(self, retry: ParkedRetry, now_s: float) -> None:
        """Let a retry wait."""
        if not self.parked and not self._is_probing and self._delay_s == FIRST_PROBE_S:
            # No probe has failed since the last answer; but something else has, just now.
            self._probe_s = now_s + FIRST_PROBE_S
        self.parked[retry.worker.name, retry.request.request_id] = retry

    def take(
        self, n_requests: int, now_s: float, *, is_removed: bool = False
    ) -> tuple[ParkedRetry, bool] | None:
        """The parked retry that may go now, and whether it goes as the probe; None for none.

        Args:
            n_requests: Requests that the instance has been sent so far, retries left out.
            now_s: Now.
            is_removed: Whether nothing is sent there any more: then all go, to other instances.
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
        """The instance answered something: the next probe may go at once."""
        self._delay_s = FIRST_PROBE_S
        self._probe_s = now_s

    def probe_over(self) -> None:
        """The probe is back with an answer, or it was never sent: the next one may go."""
        self._is_probing = False

    def probe_lost(self, now_s: float) -> None:
        """The probe was sent, and nobody knows what became of it."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s

    def probe_failed(self, now_s: float) -> None:
        """The probe is back and has failed."""
        self._is_probing = False
        self._probe_s = now_s + self._delay_s
        self._delay_s = min(LONGEST_PROBE_S, 2.0 * self._delay_s)

    def _draw(self, n_requests: int) -> bool:
        if self.n_drawn + 1 > FIXED + SHARE * n_requests:
            return False
        self.n_drawn += 1
        return True
