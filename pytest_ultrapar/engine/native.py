"""Requests as a provider's own client writes them: checked, sent on a lane of the case's model.

Limits, retries and attempts are those of `Sender`, as for every request. What is different here is
who reads the answer: not we, but whoever asked. So what is wrong with a request is handed over as
the provider said it, and only what says nothing about the request is ours to raise.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from pytest_ultrapar.apis.asked import Asked, asked_of
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.apis.sanitise import MOST_OBJECTS, has_too_many_objects
from pytest_ultrapar.apis.state import flaw_of_request
from pytest_ultrapar.engine.answers import Answer, Pieces
from pytest_ultrapar.errors import BadRequestError, PromptRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.engine.conversation import Conversation
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.sender import EngineParts, Sender

POOL_KEY = "pool"
"""The key that an SDK is given: which key a request is sent with is decided per lane."""
HOME = "https://pool.invalid"
"""The address that an SDK is given, which no request ever goes to."""
PUBLIC_HOMES = frozenset(
    {
        "api.openai.com",
        "api.anthropic.com",
        "generativelanguage.googleapis.com",
        "api.mistral.ai",
    }
)
"""Where SDKs send to when they are told nothing: their owners meant no address of their own."""
LARGEST_REQUEST_BYTES = 100_000_000
KEPT_TOKENS = 4000
"""Supposed of a state that the provider has, where no answer has said anything yet."""
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_KEY_PARAMETER = "key"
_NOT_SENT = re.compile(
    # Who asks, whose account pays, and what is a connection's own business.
    r"authorization|cookie|(x-|x-goog-)?api-key|openai-(organization|project)|x-stainless-.*"
    r"|x-goog-(api-client|user-project)|user-agent|host|connection|keep-alive|te|trailer|upgrade"
    r"|proxy-.*|transfer-encoding|content-length|accept-encoding"
)
_NOT_HANDED_ON = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection", "set-cookie"}
)
"""Headers that were true of the body as it came, and of a connection that is not the SDK's."""
_ANY_BYTES = ("utf-8", "surrogateescape")
_ONLY_OUR_RETRIES = {"x-should-retry": "false"}


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


class Pump:
    """A stream that the engine reads; whoever asked for it takes from here what has come."""

    def __init__(self, pieces: Pieces, task: asyncio.Task[Any], parts: EngineParts) -> None:
        self._pieces = pieces
        self._task = task
        self._parts = parts
        task.add_done_callback(pieces.wake)

    async def next(self) -> bytes:
        """The bytes that came since the last call, at least one; none after the last.

        Raises:
            InfraError: The stream broke.
        """
        while True:
            if piece := self._pieces.take():
                return self._parts.masked(piece)
            if self._task.done():
                self._task.result()
                return b""
            await self._pieces.news()

    @property
    def fault(self) -> PromptRefused | BadRequestError | None:
        """What is wrong with the request, where what has come of the stream says so."""
        failure = self._pieces.failure
        if failure is None:
            return None
        message = self._parts.shown(failure.message)
        if failure.outcome == "refused":
            return PromptRefused(failure.refused_kind or "refused", message)
        return BadRequestError(message)

    async def begin(self) -> bool:
        """Wait for the first piece; False: the answer ended without one."""
        while not self._pieces.has_begun and not self._task.done():
            await self._pieces.news()
        return self._pieces.has_begun

    def close(self) -> None:
        """Nobody reads on: what has not come yet need not come, and the seat is given back."""
        # The last piece is here: what is left to do is to give the connection back.
        if not self._pieces.is_whole:
            self._task.cancel()


@dataclass(frozen=True, slots=True)
class _Native:
    """A request that has passed the checks; a `sender.Request`.

    Attributes:
        path: The resource, one of its API's `serves`.
        query: To be sent beside what the lane's URL has.
        fields: Of the body, undecoded.
        asked: What it asks for.
    """

    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    fields: dict[str, msgspec.Raw]
    asked: Asked
    tokens: int
    most: tuple[int, int, int] | None
    pieces: Pieces | None

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        url = endpoint.api.resource_url(
            endpoint.base_url, endpoint.api_name, endpoint.version, self.path
        )
        if self.query:
            url += ("&" if "?" in url else "?") + urlencode(self.query)
        fields = self.fields
        if "model" in fields:
            fields = {**fields, "model": msgspec.Raw(msgspec.json.encode(endpoint.api_name))}
        there = replace(
            endpoint,
            url=url,
            headers=self.headers,
            stream=self.pieces is not None,
            read_by=endpoint.api.serves[self.path],
        )
        return there, msgspec.json.encode(fields)


class NativeClient:
    """Answers the native requests of one episode; used on the engine's loop alone."""

    def __init__(
        self, model: str, conversation: Conversation, parts: EngineParts, sender: Sender
    ) -> None:
        """Make a client.

        Args:
            model: The case's model; all requests are for it.
            conversation: The episode's.
            parts: What the clients of an engine share.
            sender: The episode's.
        """
        self._model = model
        self._conversation = conversation
        self._parts = parts
        self._sender = sender
        self._lanes = [one for one in parts.endpoints.values() if one.model == model]
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[Any], Pieces | None] = {}
        self._kept: dict[str | None, int] = {}
        self._is_closed = False

    def must_serve(self, path: str, whose: str) -> None:
        """Make sure that whatever lane a request gets knows a resource.

        Args:
            path: The resource.
            whose: Who will ask for it, for people.

        Raises:
            BadRequestError: A lane does not; the case is an `error`.
        """
        for lane in self._lanes:
            if path not in lane.api.serves:
                served = ", ".join(sorted(lane.api.serves)) or "nothing"
                self._refuse(
                    f"{whose} does not fit the lane {lane.lane}: its API knows no {path}, SDKs "
                    f"may ask it for {served}"
                )

    async def answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Handed:
        """What the provider answers to a request, as soon as there is something to hand on.

        Args:
            method: As the SDK has it, like all that follows.
            url: Whole; only the resource that it names matters, and its query.
            headers: With lower-case names.
            body: Whole.

        Raises:
            InfraError: There is no answer. The case is `infra`, whatever the SDK makes of this.
            BadRequestError: The request is none that may be sent; the case is an `error`.
            RuntimeError: The episode has ended, or this is another thread than its own.
        """
        if asyncio.get_running_loop() is not self._loop:
            msg = "a client of llm was used on another event loop than its episode's"
            raise RuntimeError(msg)
        if self._is_closed:
            msg = "a client of llm was used after its episode had ended"
            raise RuntimeError(msg)
        conversation = self._conversation
        conversation.check()
        asked = self._checked(method, url, headers, body)
        turn = conversation.n_turns
        conversation.n_turns += 1
        conversation.note(turn, asked.asked.messages)
        task = self._loop.create_task(self._answered(turn, asked))
        self._running[task] = asked.pieces
        task.add_done_callback(self._over)
        if asked.pieces is not None:
            pump = Pump(asked.pieces, task, self._parts)
            try:
                if await pump.begin():
                    pieces = asked.pieces
                    return Handed(pieces.status, self._handed_on(pieces.headers or {}), pump)
            except asyncio.CancelledError:
                pump.close()
                raise
        return await task

    async def close(self) -> None:
        """End all requests that the episode left behind, so that its record has each of them."""
        self._is_closed = True
        for task, pieces in self._running.items():
            if pieces is None or not pieces.is_whole:
                task.cancel()
        if self._running:
            await asyncio.wait(list(self._running))

    def _over(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if not task.cancelled():
            # Its failure is the case's already, whether anybody waits for it or not.
            task.exception()

    async def _answered(self, turn: int, asked: _Native) -> Handed:
        result, answer = await self._sender.answer(turn, asked)
        assert isinstance(answer, Answer)
        headers, body = self._handed_on(answer.headers), self._parts.masked(answer.body)
        if isinstance(result, Reply):
            # Embeddings say nothing of how long the model's answers are.
            if self._parts.tokens is not None and result.tokens_out:
                self._parts.tokens.learn(self._model, asked.asked, result, is_first=turn == 0)
            if result.tokens_in is not None and result.tokens_out is not None:
                names = {result.id, asked.asked.goes_on} - {None}
                self._kept |= dict.fromkeys(names, result.tokens_in + result.tokens_out)
            self._conversation.heard(turn, result)
            return Handed(answer.status, headers, body)
        return Handed(answer.status, {**headers, **_ONLY_OUR_RETRIES}, body, result)

    def _checked(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> _Native:
        """The request to send; refuses what may not be sent."""
        split = urlsplit(url)
        query = parse_qsl(split.query, keep_blank_values=True)
        if split.hostname not in PUBLIC_HOMES and split.hostname != urlsplit(HOME).hostname:
            self._refuse(
                f"a client of llm would send to {split.hostname}: its requests go to the pool's "
                f"lanes, so give it no address of its own (or {HOME})"
            )
        keys = [headers[name].removeprefix("Bearer ") for name in _KEY_HEADERS if name in headers]
        keys += [value for name, value in query if name == _KEY_PARAMETER]
        if any(key != POOL_KEY for key in keys):
            self._refuse(
                "a client of llm brings a key of its own: the pool's keys are used, so give it "
                "api_key=llm.api_key"
            )
        if len(body) > LARGEST_REQUEST_BYTES:
            self._refuse(
                f"a request has {len(body)} bytes; a client of llm sends at most "
                f"{LARGEST_REQUEST_BYTES}"
            )
        path, named = self._resource(method, split.path)
        fields, plain = self._fields(body)
        if (flaw := flaw_of_request(plain)) is not None:
            self._refuse(f"a request of a client of llm {flaw}")
        named = plain.get("model", named)
        names = {self._model, *(lane.api_name for lane in self._lanes)}
        if named is not None and (not isinstance(named, str) or named not in names):
            self._refuse(
                f"a client of llm asks for the model {named!r}, and its case is about "
                f"{self._model!r}: give it model=llm.model"
            )
        is_stream = plain.get("stream") is True or ":stream" in path
        asked = asked_of(plain)
        if path == "/embeddings":
            asked = msgspec.structs.replace(asked, bound=1)
        tokens, most, estimates = 0, None, self._parts.tokens
        if estimates is not None:
            kept = 0 if asked.goes_on is None else self._kept_by_provider(asked.goes_on)
            tokens = estimates.of_request(self._model, asked, kept)
            most = estimates.most_of(self._model, len(body), asked, kept)
        sent = {name: value for name, value in headers.items() if not _NOT_SENT.fullmatch(name)}
        # A lane has its own version in its URL.
        own = {_KEY_PARAMETER, "api-version"}
        return _Native(
            path,
            [(name, value) for name, value in query if name not in own],
            sent,
            fields,
            asked,
            tokens,
            most,
            Pieces() if is_stream else None,
        )

    def _fields(self, body: bytes) -> tuple[dict[str, msgspec.Raw], dict[str, Any]]:
        """The fields of a body, undecoded for the provider and decoded for us."""
        if has_too_many_objects(body):
            self._refuse(f"a request of a client of llm has more than {MOST_OBJECTS} objects")
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            return fields, {name: msgspec.json.decode(field) for name, field in fields.items()}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(f"a client of llm sends JSON objects, and this is none: {error}")

    def _kept_by_provider(self, name: str) -> int:
        """Tokens of a state that the provider has: as an answer of it said, else the most so far.

        A conversation has what its last answer had; of names from elsewhere nobody knows.
        """
        return self._kept.get(name, max(self._kept.values(), default=KEPT_TOKENS))

    def _handed_on(self, headers: Mapping[str, str]) -> dict[str, str]:
        masked = self._parts.masked
        return {
            name.lower(): masked(value.encode(*_ANY_BYTES)).decode(*_ANY_BYTES)
            for name, value in headers.items()
            if name.lower() not in _NOT_HANDED_ON
        }

    def _resource(self, method: str, path: str) -> tuple[str, str | None]:
        """The resource that a path names, and the model if it names that, too."""
        found: tuple[str, str | None] | None = None
        for lane in self._lanes:
            found = None if method != "POST" else _asked_of(lane, path)
            if found is None:
                served = ", ".join(sorted(lane.api.serves)) or "nothing"
                self._refuse(
                    f"a client of llm asks for {method} {path}, which {lane.lane} does not serve; "
                    f"SDKs may ask it for: {served}"
                )
        if found is None:
            self._refuse(f"the pool has no lane of the model {self._model!r}")
        return found

    def _refuse(self, sentence: str) -> NoReturn:
        error = BadRequestError(sentence)
        self._conversation.fail(error)
        raise error


def _asked_of(lane: Endpoint, path: str) -> tuple[str, str | None] | None:
    for served in lane.api.serves:
        below = re.escape(served).replace(r"\{model\}", "(?P<name>[^/:]+)")
        match = re.fullmatch(f"(?:{lane.api.base_paths})?{below}", path)
        if match is not None:
            named = next((one for one in match.groupdict().values() if one is not None), None)
            return served, None if named is None else unquote(named)
    return None
