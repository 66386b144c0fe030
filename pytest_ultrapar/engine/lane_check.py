"""Check with the shortest request whether a lane works: before a run, or after refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.server_json import LEFT_OUT
from pytest_ultrapar.broker.interface import may_send
from pytest_ultrapar.engine.answers import (
    Answer,
    TooLateError,
    as_awaited,
    feedback_from,
    read_answer,
)
from pytest_ultrapar.engine.endpoints import request_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.apis.outcome import Allowance
    from pytest_ultrapar.apis.registry import Api
    from pytest_ultrapar.broker.interface import BrokerInterface
    from pytest_ultrapar.broker.protocol import Lease, LeaseOutcome
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.http import HttpClient
    from pytest_ultrapar.system.clock import Clock

MESSAGES = [{"role": "user", "content": "Reply with OK."}]
_ENDED_EARLY = "model output limit was reached"
"""A part of the error message with which OpenAI's reasoning models answer (status 400) if the token
limit is too small for any text."""


def smallest(api: Api) -> dict[str, Any]:
    """Parameters for the shortest answer: 1 token, or as few as the API accepts."""
    return {"max_tokens": getattr(api, "least_tokens", 1)}


def smallest_body(endpoint: Endpoint) -> bytes:
    """The body of a chat completion that asks for the shortest answer."""
    return request_body(endpoint, MESSAGES, smallest(endpoint.api))


def what_is_wrong(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Failure | None:
    """Return the lane's failure; None if the lane works. The answer took `latency_s` seconds."""
    result = read_answer(answer, endpoint, latency_s)
    # A lane that refuses a prompt has read it, so the lane works.
    if not isinstance(result, Failure) or result.outcome == "refused":
        return None
    if result.outcome == "bad_request" and _ENDED_EARLY in result.message:
        return None
    return result


def _is_own(failure: Failure) -> bool:
    """Whether the request failed only because of its low token limit.

    In that case, other requests may succeed.
    """
    return failure.outcome == "bad_request" and "tokens" in failure.said


async def send_check(  # noqa: PLR0917
    port: BrokerInterface,
    http: HttpClient,
    clock: Clock,
    endpoint: Endpoint,
    lease: Lease,
    told: Callable[[Allowance | None], None] = lambda _: None,
) -> Failure | None:
    """Send the shortest request on a lease, and give the lease back to the broker.

    `told` is called with the limits from the answer's headers.

    Returns:
        The lane's failure; None if the lane works.

    Raises:
        TooLateError: The lease was too old, so no request was sent.
    """

    def is_in_time() -> bool:
        return may_send(port, lease, clock.now_s())

    sent_s = clock.now_s()
    outcome: LeaseOutcome | None = "cancelled"
    LEFT_OUT.set(set())
    answer: Answer | Failure | None = None
    failure: Failure | None = None
    try:
        body = smallest_body(endpoint)
        timeout_s = endpoint.timeout_s
        answer = await http.exchange(
            endpoint, body, timeout_s=timeout_s, may_send=is_in_time, is_fresh=True
        )
        if isinstance(answer, Answer):
            told(endpoint.api.allowance(answer.headers))
        failure = what_is_wrong(answer, endpoint, clock.now_s() - sent_s)
        failure = failure and as_awaited(failure, lease)
        outcome = "ok" if failure is None or _is_own(failure) else failure.outcome
    except TooLateError:
        outcome = None
        raise
    finally:
        if outcome is not None:
            late_s = sent_s - lease.granted_s
            port.release(lease, outcome, feedback_from(failure, endpoint, answer, late_s))
    return failure
