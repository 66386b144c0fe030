"""When to try again: the only retry layer there is.

How long a request waits has three reasons. Its own failures cost attempts and back off
(`apis.failure_classes.backoff_s`). A refusal by rate
costs none: its lane pauses instead (`broker.health`), and the request takes another lane or waits
for that one. Where too many requests fail at once, the broker parks retries until one of them
succeeds (`broker.retry_budget`).

A 503 or refused connection that names no time to come back counts as a refusal by rate while the
instance answers others, but at most `sender.MOST_CROWDED` times per turn: `Sender._send` says which
it is before this module is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.apis.failure_classes import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.apis.failure import Failure
    from pytest_ultrapar.broker.protocol import LeaseOutcome

Verdict = Literal["again", "give_up", "refused", "bad_request"]


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often one turn is tried, by the table of failure classes.

    Attributes:
        max_attempts: Failures of the request's own (transport, time-out, 5xx, malformed) per turn
            before the case is `infra`, >= 1. With 1 nothing is tried again, not even after 429.
    """

    max_attempts: int = 3

    def decide(self, failure: Failure, failed: Sequence[LeaseOutcome]) -> Verdict:
        """What to do after a failed attempt.

        Args:
            failure: What became of it.
            failed: How the attempts of this turn ended so far, this one included.
        """
        outcome = failure.outcome
        if outcome == "refused":
            return "refused"
        if outcome == "bad_request":
            return "bad_request"
        its_class = CLASSES[outcome]
        if self.max_attempts == 1 or its_class.again == "never":
            return "give_up"
        # A server that does not want to see it again speaks for itself, not for another account.
        if failure.is_final and its_class.removes is None:
            return "give_up"
        if its_class.again == "free":
            return "again"
        # What timed out twice has cost two whole time-outs, and is likely to cost a third.
        if its_class.again == "once" and failed.count(outcome) > 1:
            return "give_up"
        return "again" if self.n_own(failed) < self.max_attempts else "give_up"

    def n_own(self, failed: Sequence[LeaseOutcome]) -> int:
        """How many of these attempts count against `max_attempts`."""
        return sum(CLASSES[outcome].costs_attempt for outcome in failed)
