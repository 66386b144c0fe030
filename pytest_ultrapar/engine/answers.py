"""What an answer is and means: to the episode that asked, and to the broker that let it ask.

Suites load it with `Llm`: without the HTTP client (0.1 s), which nobody needs to list tests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import Stream
from pytest_ultrapar.apis.reply import Reply, body_text
from pytest_ultrapar.broker.protocol import Feedback

if TYPE_CHECKING:
    from pytest_ultrapar.engine.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response.

    Attributes:
        headers: Looked up in any case of letters.
        body: Decoded; of a stream, all that came.
        t_first_byte_s: When its headers had arrived, monotonic seconds.
        stream: What came of a body that was a stream.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    t_first_byte_s: float
    stream: Stream | None = None


class Pieces:
    """A streamed answer on its way to whoever asked for the stream.

    Reading it from the server is the engine's own business, at the server's pace: a reader who is
    slow or gone would else hold a seat that the provider has given back long ago.

    Attributes:
        status: Of the answer.
        headers: Of the answer, with lower-case lookup; None until its first piece is here, and
            up to then the request may be tried again.
        failure: An error in it that says what is wrong with the request, which the reader gets.
        is_whole: Nothing of the answer is missing, though its connection may be open still.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] | None = None
        self.is_whole = False
        self.failure: Failure | None = None
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether the reader may have seen some of it."""
        return self.headers is not None

    def put(self, status: int, headers: Mapping[str, str], piece: bytes) -> None:
        """Hand the next bytes of the body on, decoded."""
        self.status, self.headers = status, headers
        self._pieces.append(piece)
        self._news.set()

    def wake(self, _: object = None) -> None:
        """Have the reader look whether that was all."""
        self._news.set()

    def take(self) -> bytes:
        """What has come and was not taken yet; empty for nothing."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken

    async def news(self) -> None:
        """Wait for a piece or a call of `wake`, one that was missed included."""
        await self._news.wait()
        self._news.clear()


def read_answer(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Reply | Failure:
    """The model's reply, or what went wrong.

    Args:
        answer: What the exchange brought.
        endpoint: Whose answer it is.
        latency_s: How long it took, seconds.
    """
    if isinstance(answer, Failure):
        return answer
    if answer.stream is not None or answer.status == HTTPStatus.OK:
        if answer.stream is not None:
            found = answer.stream.reply(endpoint.lane, latency_s)
        else:
            found = endpoint.reader.reply(answer.body, endpoint.lane, latency_s)
        return found if isinstance(found, Failure) else replace(found, body=body_text(answer.body))
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
        tokens = None
        # Half of it is no count: what is not said is not nothing.
        if result.tokens_in is not None and result.tokens_out is not None:
            tokens = result.tokens_in + result.tokens_out
        return Feedback(
            tokens=tokens or None,
            allowance=allowance,
            tokens_out=result.tokens_out,
            late_s=late_s,
            cache_write_tokens=result.cache_write_tokens or 0,
        )
    if result is None:
        return Feedback(allowance=allowance, late_s=late_s)
    if result.is_wordless:
        return Feedback(
            exceeded=result.exceeded,
            allowance=allowance,
            is_wordless=True,
            late_s=late_s,
            maybe_billed=result.maybe_billed,
        )
    is_too_many = isinstance(answer, Answer) and answer.status == HTTPStatus.TOO_MANY_REQUESTS
    return Feedback(
        result.retry_after_s,
        result.exceeded,
        allowance=allowance,
        late_s=late_s,
        is_too_many=is_too_many,
        maybe_billed=result.maybe_billed,
    )
