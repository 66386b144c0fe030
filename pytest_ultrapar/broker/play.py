"""The broker in virtual time: hours of a run in seconds, and the same ones each time.

What is played is the production broker. A play says what becomes of requests and what comes when;
the clock goes from one thing that happens to the next and costs nothing between them.
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
    """A broker, its clock, and what is going to happen; `book` says what follows from it.

    Attributes:
        broker: The one that is played; what its methods return must be booked.
        now_s: The time. It may be set, forward, as if the process had slept.
    """

    def __init__(self, broker: LaneBroker, *, now_s: float = 0.0) -> None:
        """Begin at `now_s`, with nobody connected and nothing to come."""
        self.broker = broker
        self.now_s = now_s
        self._coming: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = itertools.count()

    @abstractmethod
    def book(self, actions: list[Action]) -> None:
        """Take what the broker has granted and refused, now."""

    # -- what clients say ------------------------------------------------------------------------

    def say(self, who: str, message: ClientMessage) -> Answer | None:
        """Have a worker say something, or the controller (empty); what it is answered."""
        answer, actions = self.broker.handle(who, message, self.now_s)
        self.book(actions)
        return answer

    def assign(self, assignment: Assignment) -> None:
        """Have an assignment carried out."""
        self.book(self.broker.assign(assignment, self.now_s))

    def connect(self, *workers: str) -> None:
        """Have workers come."""
        for worker in workers:
            self.book(self.broker.connect(worker, self.now_s))

    def disconnect(self, worker: str) -> None:
        """Have a worker go, with all that it holds."""
        self.book(self.broker.disconnect(worker, self.now_s))

    def request(self, worker: str, request: LeaseRequest) -> None:
        """Ask for a lease."""
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
        """Say that a case is over."""
        self.book(self.broker.episodes_ended(worker, [case_id], self.now_s))

    # -- time ------------------------------------------------------------------------------------

    def later(self, in_s: float, do: Callable[..., None], *arguments: object) -> None:
        """Have `do(*arguments)` called when so many seconds have gone by."""
        heapq.heappush(self._coming, (self.now_s + in_s, next(self._order), do, arguments))

    def next_s(self) -> float:
        """When the next thing happens; infinity for never."""
        wake_s = self.broker.next_wake_s()
        coming_s = self._coming[0][0] if self._coming else math.inf
        return coming_s if wake_s is None else min(coming_s, wake_s)

    def step(self) -> bool:
        """Go on to the next thing and let it happen; False where there is none.

        What clients do goes before what the broker itself wants to do in the same moment.
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
        """Let the broker look, at the time at which it wanted to."""
        self.now_s = max(self.now_s, at_s)
        self.book(self.broker.tick(self.now_s))

    def wait(self, seconds: float) -> None:
        """Let time pass, with all that happens in it."""
        until_s = self.now_s + seconds
        while self.next_s() <= until_s:
            self.step()
        self.now_s = until_s
