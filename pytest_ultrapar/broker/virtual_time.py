"""Runs the broker in virtual time: a run of hours takes seconds, and its results are reproducible.

This module uses the production broker. A subclass of `BrokerPlay` defines the results of requests
and the future events. The clock jumps from one event to the next.
"""

from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import NO_FEEDBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.broker import LaneBroker
    from pytest_ultrapar.broker.protocol import Action, Feedback, LeaseOutcome, LeaseRequest
    from pytest_ultrapar.broker.wire import Answer, ClientMessage


class BrokerPlay(ABC):
    """A broker in virtual time, with its clock and its future events. Subclasses define `book`.

    Attributes:
        broker: The broker. Pass all actions that its methods return to `book`.
        now_s: The current time. You may move it forward, as if the process had been suspended.
    """

    def __init__(self, broker: LaneBroker, *, now_s: float = 0.0) -> None:
        """Start at `now_s`, without workers or events."""
        self.broker = broker
        self.now_s = now_s
        self._coming: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    @abstractmethod
    def book(self, actions: list[Action]) -> None:
        """Handle the grants and refusals that the broker returned at the current time."""

    # -- messages of clients ---------------------------------------------------------------------

    def say(self, who: str, message: ClientMessage) -> Answer | None:
        """Send the broker a message from `who` (if empty: the controller). Return the answer."""
        answer, actions = self.broker.handle(who, message, self.now_s)
        self.book(actions)
        return answer

    def assign(self, assignment: Assignment) -> None:
        """Apply an assignment."""
        self.book(self.broker.assign(assignment, self.now_s))

    def connect(self, *workers: str) -> None:
        """Connect workers."""
        for worker in workers:
            self.book(self.broker.connect(worker, self.now_s))

    def disconnect(self, worker: str) -> None:
        """Disconnect a worker, which then loses its requests and leases."""
        self.book(self.broker.disconnect(worker, self.now_s))

    def request(self, worker: str, request: LeaseRequest) -> None:
        """Request a lease."""
        self.book(self.broker.request(worker, request, self.now_s))

    def release(
        self,
        worker: str,
        lease_id: int,
        outcome: LeaseOutcome = "ok",
        feedback: Feedback = NO_FEEDBACK,
    ) -> None:
        """Give a lease back."""
        self.book(self.broker.release(worker, lease_id, outcome, feedback, self.now_s))

    def episode_ended(self, worker: str, case_id: str) -> None:
        """Report that a case has ended."""
        self.book(self.broker.episodes_ended(worker, [case_id], self.now_s))

    # -- time ------------------------------------------------------------------------------------

    def later(self, in_s: float, do: Callable[..., None], *arguments: object) -> None:
        """Call `do(*arguments)` in `in_s` seconds."""
        heapq.heappush(self._coming, (self.now_s + in_s, next(self._order), do, arguments))

    def next_s(self) -> float:
        """The time of the next event; infinity if there is no event."""
        wake_s = self.broker.next_wake_s()
        coming_s = self._coming[0][0] if self._coming else math.inf
        return coming_s if wake_s is None else min(coming_s, wake_s)

    def step(self) -> bool:
        """Jump to the next event and handle it. Return False if there is no event.

        If an event of a client and a wake of the broker have the same time, the client comes first.
        """
        wake_s = self.broker.next_wake_s()
        if self._coming and (wake_s is None or self._coming[0][0] <= wake_s):
            at_s, _, do, arguments = heapq.heappop(self._coming)
            self.now_s = max(self.now_s, at_s)
            do(*arguments)
            return True
        if wake_s is None:
            return False
        self.wake(wake_s)
        return True

    def wake(self, at_s: float) -> None:
        """Move the clock to the time of a wake, and call the broker's `tick`."""
        self.now_s = max(self.now_s, at_s)
        self.book(self.broker.tick(self.now_s))

    def wait(self, seconds: float) -> None:
        """Let this many seconds pass, and handle all events in that time."""
        until_s = self.now_s + seconds
        while self.next_s() <= until_s:
            self.step()
        self.now_s = until_s
