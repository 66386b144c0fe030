"""Answers, and what they mean for the broker and for the episode that sent the request.

A suite that imports `Llm` also imports this module. So this module does not import the HTTP client:
that import takes 0.1 s, and a run that only lists tests does not need the client.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import replace as replaced

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import Stream
from pytest_ultrapar.apis.reply import Messages, Reply, as_one_body, body_text
from pytest_ultrapar.apis.server_json import LEFT_OUT
from pytest_ultrapar.apis.server_sent_events import MaskedEvents
from pytest_ultrapar.broker.protocol import Feedback, TokenBounds
from pytest_ultrapar.errors import BadRequestError, PromptRefused
from pytest_ultrapar.system.clock import wall_s

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import Lease
    from pytest_ultrapar.engine.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response.

    Attributes:
        headers: The headers; lookup ignores case.
        body: The decoded body; for a stream, the part that was read.
        t_first_byte_s: When the headers arrived, in seconds on the monotonic clock.
        stream: The stream that was read from the body; None if the answer was not a stream.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    t_first_byte_s: float
    stream: Stream | None = None

    def one_body(self, reply: Reply) -> bytes:
        """Convert the stream to a single body: in the API's own form, or else a chat completion."""
        return cast("bytes", getattr(self.stream, "one_body", as_one_body)(reply))


class Pieces:
    """A streamed answer on its way to its reader.

    The engine reads the stream as fast as the server sends it. If the engine waited for its reader,
    a slow or disconnected reader would occupy a seat that the provider has already freed.

    Attributes:
        status: The HTTP status.
        headers: The HTTP headers, with lower-case lookup. None until the first piece arrives; until
            then the request may be sent again.
        failure: The error, if the stream reports that the request is wrong or was refused. The
            reader gets this part of the stream, too.
        is_whole: Whether the answer is complete, even if its connection is still open.
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
        """Whether the reader may have seen a part of the answer."""
        return self.headers is not None

    def put(self, status: int, headers: Mapping[str, str], piece: bytes) -> None:
        """Pass on the next decoded bytes of the body."""
        self.status, self.headers = status, headers
        self._pieces.append(piece)
        self._news.set()

    def wake(self, _: object = None) -> None:
        """Wake the reader, so that it checks whether the answer has ended."""
        self._news.set()

    def take(self) -> bytes:
        """Return all bytes that have arrived since the last call; may be empty."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken

    async def news(self) -> None:
        """Wait for a piece or for `wake`; return at once if either came since the last wait."""
        await self._news.wait()
        self._news.clear()


class ClientGoneError(Exception):
    """The client disconnected before its request was sent, so the request is not sent."""


class TooLateError(Exception):
    """The connection was made too late to use this lease; nothing was sent."""


class Request(Protocol):
    """A request that any lane may answer.

    Attributes:
        messages: The readable text of the request.
        tokens: The estimated number of tokens in the request and its answer; 0 if no limit counts
            tokens.
        most: The maximum number of tokens that the request may use (`TokenEstimates.most`); None if
            its model has no budget.
        pieces: Gets the answer as it arrives, if the client asked for a stream. Once a part of the
            answer may have reached the client, the request is not sent again.
    """

    @property
    def messages(self) -> Messages: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102
    @property
    def pieces(self) -> Pieces | None: ...  # noqa: D102

    @property
    def most(self) -> TokenBounds | None: ...  # noqa: D102

    def begin(self) -> bool:
        """Record that a lane is free for the request; return whether the request is to be sent."""

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        """Return the endpoint that the request uses on a lane, and the body to send there.

        This is called only once per lane, even if the request is sent there several times.
        """


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An answer in the form in which the client gets it.

    Attributes:
        headers: The headers of the answer, except for those about its encoding or connection.
        body: The whole body, or its stream.
        fault: The error in the request, if the answer reports an error.
    """

    status: int
    headers: dict[str, str]
    body: bytes | StreamRelay
    fault: PromptRefused | BadRequestError | None = None


@dataclass(eq=False, repr=False)
class StreamRelay:
    """Passes a stream on to the client, event by event, while the engine reads it.

    `_wanted` removes the events that the client did not ask for.
    """

    _pieces: Pieces
    _task: asyncio.Task[Any]
    _events: MaskedEvents
    _shown: Callable[[str], str]
    _wanted: Callable[[bytes], bytes] = bytes

    def __post_init__(self) -> None:
        self._task.add_done_callback(self._pieces.wake)

    async def next(self) -> bytes:
        """Wait for events and return at least one; return an empty value after the last event.

        Raises:
            InfraError: The stream broke.
        """
        while True:
            if events := self._wanted(self._events.feed(self._pieces.take())):
                return events
            if self._task.done():
                self._task.result()
                return self._wanted(self._events.end())
            await self._pieces.news()

    @property
    def fault(self) -> PromptRefused | BadRequestError | None:
        """The error in the request, if the stream has reported an error so far."""
        failure = self._pieces.failure
        if failure is None:
            return None
        message = self._shown(failure.message)
        if failure.outcome == "refused":
            return PromptRefused(failure.refused_kind or "refused", message)
        return BadRequestError(message)

    async def begin(self) -> bool:
        """Wait for the first piece; return False if the answer ended before a piece came."""
        while not self._pieces.has_begun and not self._task.done():
            await self._pieces.news()
        return self._pieces.has_begun

    async def ended(self) -> bool:
        """Wait until the stream ends; return False if the client cancelled it."""
        await asyncio.wait({self._task})
        return not self._task.cancelled()

    def close(self) -> None:
        """End the stream because its reader is gone, and free the seat."""
        # After the last piece, let the task run: it only has to return the connection.
        if not self._pieces.is_whole:
            self._task.cancel()


def read_answer(answer: Answer | Failure, endpoint: Endpoint, latency_s: float) -> Reply | Failure:
    """Return the model's reply, or the failure.

    Args:
        answer: The result of the exchange.
        endpoint: The endpoint that answered.
        latency_s: How long the answer took, in seconds.
    """
    if isinstance(answer, Failure):
        return answer
    if answer.stream is not None:
        found = answer.stream.reply(endpoint.lane, latency_s)
    elif answer.status == HTTPStatus.OK:
        found = endpoint.reader.reply(answer.body, endpoint.lane, latency_s)
    else:
        status, headers = answer.status, answer.headers
        found = endpoint.api.failure(status, answer.body, headers, epoch_s=wall_s())
    if isinstance(found, Reply):
        # The reply is new and not shared yet. Copying it would take longer than reading the answer.
        object.__setattr__(found, "body", body_text(answer.body))
        return found
    from pytest_ultrapar.apis.classify import as_taught  # noqa: PLC0415 - needed only for failures

    return as_taught(found, endpoint.patterns)


def as_awaited(failure: Failure, lease: Lease) -> Failure:
    """Change a proxy's failure to `loading` if the server behind the proxy has never answered."""
    is_away = lease.is_first and failure.meaning == "proxy"
    return replace(failure, outcome="loading") if is_away else failure


def feedback_from(
    result: Reply | Failure | None,
    endpoint: Endpoint,
    answer: Answer | Failure | None,
    late_s: float,
) -> Feedback:
    """Return the facts about an answer that the broker needs besides the outcome.

    Args:
        result: The reply or failure that was read from the answer; None if there was no answer.
        endpoint: Determines whether the headers of all answers are read, or only the headers of
            failures.
        answer: The result of the exchange.
        late_s: How long after the grant of the lease the request was sent, in seconds.
    """
    allowance = None
    is_read = endpoint.reads_allowance or isinstance(result, Failure)
    if is_read and isinstance(answer, Answer):
        allowance = endpoint.api.allowance(answer.headers)
    told = Feedback(allowance=allowance, late_s=late_s, left_out=tuple(LEFT_OUT.get() or ()))
    if isinstance(result, Failure):
        status = answer.status if isinstance(answer, Answer) else None
        return replaced(
            told,
            retry_after_s=result.retry_after_s,
            exceeded=result.exceeded,
            is_wordless=result.is_wordless,
            is_too_many=status == HTTPStatus.TOO_MANY_REQUESTS,
            maybe_billed=result.maybe_billed,
            words=_words(result) if result.outcome == "bad_request" else 0,
        )
    if result is None:
        return told
    tokens = None
    # Use the numbers only if both are there: a missing number does not mean 0.
    if result.tokens_in is not None and result.tokens_out is not None:
        tokens = result.tokens_in + result.tokens_out
    return replaced(
        told,
        tokens=tokens or None,
        tokens_out=result.tokens_out,
        cache_write_tokens=result.cache_write_tokens or 0,
        is_cut=result.finish_reason == "length",
    )


def _words(failure: Failure) -> int:
    """Hash the words in a failure's message, except words that contain digits, such as ids."""
    return zlib.crc32(re.sub(r"\S*\d\S*", "", failure.said).encode("utf-8", "replace"))
