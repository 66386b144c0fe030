"""What an answer is and means: to the episode that asked, and to the broker that let it ask.

Suites load it with `Llm`: without the HTTP client (0.1 s), which nobody needs to list tests.
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

from pytest_ultrapar.apis.events import MaskedEvents
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.registry import Stream
from pytest_ultrapar.apis.reply import Messages, Reply, as_one_body, body_text
from pytest_ultrapar.apis.sanitise import LEFT_OUT
from pytest_ultrapar.broker.protocol import Feedback, Most
from pytest_ultrapar.errors import BadRequestError, PromptRefused
from pytest_ultrapar.system.clock import wall_s

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import Lease
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

    def one_body(self, reply: Reply) -> bytes:
        """The stream put together, as its API has an answer that is none; as chat if it cannot."""
        return cast("bytes", getattr(self.stream, "one_body", as_one_body)(reply))


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


class NobodyWaitsError(Exception):
    """Whoever asked has left before the request was sent: it is not sent."""


class TooLateError(Exception):
    """When there was a connection, the request might no longer be sent; nothing was sent."""


class Request(Protocol):
    """What is to be answered, whichever lane answers.

    Attributes:
        messages: What of it is text to be read.
        tokens: How many it may take, in and out; 0 where no limit counts them.
        most: What it may cost (`TokenEstimates.most`); None where no budget counts
            it.
        pieces: Gets the answer as it comes where somebody waits for a stream. What has begun to
            reach them is not tried again.
    """

    @property
    def messages(self) -> Messages: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102
    @property
    def pieces(self) -> Pieces | None: ...  # noqa: D102

    @property
    def most(self) -> Most | None: ...  # noqa: D102

    def begin(self) -> bool:
        """Hear that a lane is there to send it on; whether it is still to be sent."""

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        """Where to send it on a lane, and the body that is sent there.

        Asked once per lane, however often it is tried there.
        """


@dataclass(frozen=True, slots=True)
class Handed:
    """An answer as whoever asked gets it.

    Attributes:
        headers: Without those of the connection.
        body: All of it, or the stream of it.
        fault: What is wrong with the request, where that is the answer.
    """

    status: int
    headers: dict[str, str]
    body: bytes | Pump
    fault: PromptRefused | BadRequestError | None = None


@dataclass(eq=False, repr=False)
class Pump:
    """A stream that the engine reads; whoever asked for it takes from here what has come.

    The last argument takes out of whole events those that its reader did not ask for.
    """

    _pieces: Pieces
    _task: asyncio.Task[Any]
    _events: MaskedEvents
    _shown: Callable[[str], str]
    _wanted: Callable[[bytes], bytes] = bytes

    def __post_init__(self) -> None:
        self._task.add_done_callback(self._pieces.wake)

    async def next(self) -> bytes:
        """The events that came since the last call, at least one; none after the last.

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
        """What is wrong with the request, where what has come of the stream says so."""
        failure = self._pieces.failure
        if failure is None:
            return None
        message = self._shown(failure.message)
        if failure.outcome == "refused":
            return PromptRefused(failure.refused_kind or "refused", message)
        return BadRequestError(message)

    async def begin(self) -> bool:
        """Wait for the first piece; False: the answer ended without one."""
        while not self._pieces.has_begun and not self._task.done():
            await self._pieces.news()
        return self._pieces.has_begun

    async def ended(self) -> bool:
        """Wait until all has come or nothing more will; whether somebody wanted all of it."""
        await asyncio.wait({self._task})
        return not self._task.cancelled()

    def close(self) -> None:
        """Nobody reads on: what has not come yet need not come, and the seat is given back."""
        # The last piece is here: what is left to do is to give the connection back.
        if not self._pieces.is_whole:
            self._task.cancel()


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
        found = answer.stream.reply(endpoint.lane, latency_s)
    elif answer.status == HTTPStatus.OK:
        found = endpoint.reader.reply(answer.body, endpoint.lane, latency_s)
    else:
        status, headers = answer.status, answer.headers
        found = endpoint.api.failure(status, answer.body, headers, epoch_s=wall_s())
    if isinstance(found, Reply):
        # Just made, and nobody else's: a copy would take longer than all other reading.
        object.__setattr__(found, "body", body_text(answer.body))
        return found
    from pytest_ultrapar.apis.classify import as_taught  # noqa: PLC0415 - needed for failures only

    return as_taught(found, endpoint.patterns)


def as_awaited(failure: Failure, lease: Lease) -> Failure:
    """A failure as what a proxy says by it of a server that has never answered."""
    is_away = lease.is_first and failure.meaning == "proxy"
    return replace(failure, outcome="loading") if is_away else failure


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
    # Half of it is no count: what is not said is not nothing.
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
    """The same number for the same words; what has digits is left out, as ids of requests do."""
    return zlib.crc32(re.sub(r"\S*\d\S*", "", failure.said).encode("utf-8", "replace"))
