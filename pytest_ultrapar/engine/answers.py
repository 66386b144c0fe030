"""What an answer is and means: to the episode that asked, and to the broker that let it ask.

Suites load it with `Llm`: without the HTTP client (0.1 s), which nobody needs to list tests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import Stream
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.broker.protocol import Feedback

if TYPE_CHECKING:
    from pytest_ultrapar.engine.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response.

    Attributes:
        headers: Looked up in any case of letters.
        body: Decoded; empty when it was read as a stream.
        t_first_byte_s: When its headers had arrived, monotonic seconds.
        stream: What came of a body that was a stream.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    t_first_byte_s: float
    stream: Stream | None = None


def read_answer(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Reply | Failure:
    """The model's reply, or what went wrong.

    Args:
        answer: What the exchange brought.
        endpoint: Whose answer it is.
        latency_s: How long it took, seconds.
    """
    if isinstance(answer, Failure):
        return answer
    if answer.stream is not None:
        return answer.stream.reply(endpoint.lane, latency_s)
    if answer.status == HTTPStatus.OK:
        return endpoint.api.reply(answer.body, endpoint.lane, latency_s)
    return endpoint.api.failure(answer.status, answer.body, answer.headers, epoch_s=time.time())


def feedback_from(
    result: Reply | Failure | None,
    endpoint: Endpoint,
    answer: Answer | Failure | None,
    late_s: float,
) -> Feedback:
    """What the broker should know of an answer beside its outcome.

    Args:
        result: What the answer was read as; None: there was none.
        endpoint: Says whether the headers of every answer are of interest, or of failures only.
        answer: What the exchange brought.
        late_s: How long after its grant the request was sent.
    """
    allowance = None
    is_read = endpoint.reads_allowance or isinstance(result, Failure)
    if is_read and isinstance(answer, Answer):
        allowance = endpoint.api.allowance(answer.headers)
    if isinstance(result, Reply):
        tokens = (result.tokens_in or 0) + (result.tokens_out or 0)
        return Feedback(
            tokens=tokens or None, allowance=allowance, tokens_out=result.tokens_out, late_s=late_s
        )
    if result is None:
        return Feedback(allowance=allowance, late_s=late_s)
    if result.is_wordless:
        return Feedback(
            exceeded=result.exceeded, allowance=allowance, is_wordless=True, late_s=late_s
        )
    is_too_many = isinstance(answer, Answer) and answer.status == HTTPStatus.TOO_MANY_REQUESTS
    return Feedback(
        result.retry_after_s,
        result.exceeded,
        allowance=allowance,
        late_s=late_s,
        is_too_many=is_too_many,
    )
