"""Decide whether and when to send a request again. This is the only layer that retries.

A request waits before a retry for one of three reasons. A failure of the request itself costs an
attempt, and the request backs off (`apis.failure_classes.backoff_s`). A rate limit costs no
attempt: the lane pauses (`broker.health`), and the request takes another lane or waits for this
lane. If too many requests fail at the same time, the broker holds back retries until one of them
succeeds (`broker.retry_budget`).

A 503 without `Retry-After`, or a refused connection, is treated as a rate limit while the instance
answers other requests. `Sender._send` decides this before it calls this module. If a request is
refused again while others are served, the request itself is the reason (`Tries.is_own`). In that
case only this request backs off, and the run eventually gives up on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.apis.failure_classes import CLASSES, OWN, backoff_s
from pytest_ultrapar.errors import BadRequestError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from pytest_ultrapar.apis.failure import Failure
    from pytest_ultrapar.broker.protocol import Lease, LeaseOutcome
    from pytest_ultrapar.engine.answers import Answer, Pieces
    from pytest_ultrapar.pool.model import LaneId

Verdict = Literal["again", "give_up", "refused", "bad_request"]
MOST_OWN = 10
"""If a request itself was the reason for this many of its refusals, assume that it can never be
served."""


class Tries:
    """The attempts of one request so far.

    Attributes:
        failed: The outcomes of the failed attempts, oldest first.
        refused_by: As in `LeaseRequest`.
        stays: As in `LeaseRequest`: the request does not move, because no other lane needs to
            confirm the refusal.
        wrong: The error in the request and the answer that reports it, while a check decides
            whether the request or its lane is to blame.
        n_own: How often the request itself was the reason for a refusal, although the lane named a
            limit, congestion or the loading of a model.
        was_own: Whether the request itself was the reason for the last refusal of this kind.
    """

    def __init__(self) -> None:
        self.failed: list[LeaseOutcome] = []
        self.refused_by: list[LaneId] = []
        self.stays = False
        self.wrong: tuple[BadRequestError, Answer | Failure] | None = None
        self.n_own = 0
        self.was_own = False
        # For each lane: how many requests it had served and refused when it last refused this
        # request.
        self._counts: dict[LaneId, tuple[int, int]] = {}

    @property
    def is_hopeless(self) -> bool:
        """Whether the request itself caused so many refusals that it can hardly be served."""
        return self.was_own and self.n_own >= MOST_OWN

    def doubts(
        self, wrong: Exception, answer: Answer | Failure, lease: Lease, pieces: Pieces | None
    ) -> bool:
        """Whether a rejected request must wait for a check, as its lane may reject all requests.

        Args:
            wrong: The error in the request.
            answer: The answer that reports it.
            lease: The lease on which the request was sent. A check is necessary if the lane has
                served no request.
            pieces: The stream of the answer. If the client may have seen a part of the answer, the
                answer is final.
        """
        has_begun = pieces is not None and pieces.has_begun
        if lease.n_served or has_begun or not isinstance(wrong, BadRequestError):
            return False
        self.wrong = wrong, answer
        self.refused_by.append(lease.lane)
        self.stays = True
        return True

    def is_own(self, lease: Lease, *, of_tokens: bool = False) -> bool:
        """Whether the lane refused the request because of the request itself, not because of load.

        This is so if the lane has refused the request before, and since then has served at least as
        many other requests as it has refused. For the first such refusal of a request, the lane
        must also have served at least one. A token limit lets small requests pass. So if the
        refusal names one, the lane must not have refused any other request since then. Call this
        once per refusal.
        """
        before = self._counts.get(lease.lane)
        self.was_own = False
        if before is not None:
            n_served, n_refused = lease.n_served - before[0], lease.n_refused - before[1]
            is_served = not n_refused if of_tokens else n_served >= n_refused
            self.was_own = is_served and bool(n_served or self.n_own)
        self.n_own += self.was_own
        self._counts[lease.lane] = lease.n_served, lease.n_refused + (not self.was_own)
        return self.was_own


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often to try one turn, according to the table of failure classes.

    Attributes:
        max_attempts: How many failures of the request itself (transport, time-out, 5xx, malformed)
            in one turn make the case `infra`, >= 1. With 1, no request is sent again, not even
            after a 429. The only exceptions are failures that may affect only one key.
    """

    max_attempts: int = 3

    def decide(
        self, failure: Failure, failed: Sequence[LeaseOutcome], *, is_doubted: bool = False
    ) -> Verdict:
        """Decide what to do after a failed attempt.

        Args:
            failure: The failure of the attempt.
            failed: The outcomes of the failed attempts of this turn, including this one.
            is_doubted: Whether another key may succeed while a probe tests this key.
        """
        outcome = failure.outcome
        if outcome in {"refused", "bad_request"}:
            return outcome
        its_class = CLASSES[outcome]
        if its_class.again == "never" or (self.max_attempts == 1 and not is_doubted):
            return "give_up"
        # If a server forbids retries, it does so only for this account.
        if failure.is_final and its_class.removes is None:
            return "give_up"
        if its_class.again == "free":
            return "again"
        # Two time-outs have already cost twice the time limit, and a third is likely.
        if its_class.again == "once" and failed.count(outcome) > 1:
            return "give_up"
        return "again" if self.n_counted(failed) < self.max_attempts else "give_up"

    def wait_s(self, failure: Failure, tries: Tries, rng: random.Random) -> float:
        """Return how many seconds a request backs off before it asks for a lease again."""
        if CLASSES[failure.outcome].costs_attempt:
            return backoff_s(self.n_counted(tries.failed), rng)
        if failure.outcome in OWN and tries.was_own:
            # The lane does not pause because of this request, so the request itself must wait.
            return max(failure.retry_after_s or 0.0, backoff_s(tries.n_own, rng))
        return 0.0

    def n_counted(self, failed: Sequence[LeaseOutcome]) -> int:
        """Return how many of these attempts count towards `max_attempts`."""
        return sum(CLASSES[outcome].costs_attempt for outcome in failed)
