"""Requests as a provider's own client writes them: checked, sent on a lane of the case's model.

Limits, retries and attempts are those of `Sender`, as for every request. What is different here is
who reads the answer: not we, but whoever asked. So what is wrong with a request is handed over as
the provider said it, and only what says nothing about the request is ours to raise.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

from pytest_ultrapar.apis.reply import Messages, Reply
from pytest_ultrapar.apis.state import flaw_of_request
from pytest_ultrapar.engine.answers import Answer, Pieces
from pytest_ultrapar.errors import BadRequestError, PromptRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.sender import Sender

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
_OF_CASE = ("its case is about", "llm")
LARGEST_REQUEST_BYTES = 100_000_000
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

    def __init__(self, pieces: Pieces, task: asyncio.Task[Any]) -> None:
        self._pieces = pieces
        self._task = task
        task.add_done_callback(pieces.wake)

    async def next(self) -> bytes:
        """The bytes that came since the last call, at least one; none after the last.

        Raises:
            InfraError: The stream broke.
        """
        while True:
            if piece := self._pieces.take():
                return piece
            if self._task.done():
                self._task.result()
                return b""
            await self._pieces.news()

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
        messages: What of it is text to be read.
        parameters: All of it, and the bound of the answer under the name that chats have.
    """

    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    fields: dict[str, msgspec.Raw]
    messages: Messages
    parameters: dict[str, Any]
    tokens: int
    most: tuple[int, int] | None
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

    def __init__(self, sender: Sender) -> None:
        """Make a client.

        Args:
            sender: The episode's.
        """
        self._sender = sender
        self._model = sender.model
        self._conversation = sender.conversation
        self._tokens = sender.parts.tokens
        self._lanes = [one for one in sender.parts.endpoints.values() if one.model == sender.model]
        self._loop = asyncio.get_running_loop()

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
        self._conversation.check()
        asked = self._checked(method, url, headers, body)
        turn = self._sender.next_turn(asked.messages)
        task = self._loop.create_task(self._answered(turn, asked))
        task.add_done_callback(_over)
        if asked.pieces is not None:
            pump = Pump(asked.pieces, task)
            try:
                if await pump.begin():
                    pieces = asked.pieces
                    return Handed(pieces.status, _handed_on(pieces.headers or {}), pump)
            except asyncio.CancelledError:
                pump.close()
                raise
        return await task

    async def _answered(self, turn: int, asked: _Native) -> Handed:
        result, answer = await self._sender.answer(turn, asked)
        assert isinstance(answer, Answer)
        if isinstance(result, Reply):
            # Embeddings say nothing of how long the model's answers are.
            if self._tokens is not None and result.tokens_out:
                is_first = turn == 0 and not self._sender.role
                self._tokens.learn(
                    self._model, asked.messages, asked.parameters, result, is_first=is_first
                )
            self._conversation.heard(turn, result)
            return Handed(answer.status, _handed_on(answer.headers), answer.body)
        body = answer.body
        for lane in self._lanes:
            body = body.replace(lane.token.encode(), b"***") if lane.token else body
        headers = {**_handed_on(answer.headers), **_ONLY_OUR_RETRIES}
        return Handed(answer.status, headers, body, result)

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
        if (flaw := flaw_of_request(body)) is not None:
            self._refuse(f"a request of a client of llm {flaw}")
        path, named = self._resource(method, split.path)
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            plain = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(f"a client of llm sends JSON objects, and this is none: {error}")
        named = plain.get("model", named)
        names = {self._model, *(lane.api_name for lane in self._lanes)}
        if named is not None and (not isinstance(named, str) or named not in names):
            role = self._sender.role
            about, llm = (f"role {role} is", f"llm.role({role!r})") if role else _OF_CASE
            self._refuse(
                f"a client of llm asks for the model {named!r}, and {about} {self._model!r}: give "
                f"it model={llm}.model"
            )
        is_stream = plain.get("stream") is True or ":stream" in path
        messages, bounds = _as_chat(plain)
        if path == "/embeddings":
            bounds = {"max_tokens": 1}
        parameters: dict[str, Any] = {**plain, **bounds}
        tokens, most = 0, None
        if self._tokens is not None:
            tokens = self._tokens.of_request(self._model, messages, parameters)
            most = self._tokens.most_of(self._model, len(body), parameters)
        sent = {name: value for name, value in headers.items() if not _NOT_SENT.fullmatch(name)}
        # A lane has its own version in its URL.
        own = {_KEY_PARAMETER, "api-version"}
        return _Native(
            path,
            [(name, value) for name, value in query if name not in own],
            sent,
            fields,
            messages,
            parameters,
            tokens,
            most,
            Pieces() if is_stream else None,
        )

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


def _over(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        # Its failure is the case's already, whether anybody waits for it or not.
        task.exception()


def _asked_of(lane: Endpoint, path: str) -> tuple[str, str | None] | None:
    for served in lane.api.serves:
        below = re.escape(served).replace(r"\{model\}", "(?P<name>[^/:]+)")
        match = re.fullmatch(f"(?:{lane.api.base_paths})?{below}", path)
        if match is not None:
            named = next((one for one in match.groupdict().values() if one is not None), None)
            return served, None if named is None else unquote(named)
    return None


def _handed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name.lower(): value for name, value in headers.items() if name.lower() not in _NOT_HANDED_ON
    }


def _as_chat(body: Mapping[str, Any]) -> tuple[Messages, dict[str, int]]:
    """A body as messages and a bound of the answer, as far as both are easily seen.

    For estimates and for people who read transcripts: the body itself goes to the provider.
    """
    bounds: dict[str, int] = {}
    messages: list[Mapping[str, Any]] = [
        {"role": "system", "content": body[name]}
        for name in ("system", "instructions")
        if body.get(name)
    ]
    for name in ("messages", "input", "contents", "prompt"):
        given = body.get(name)
        if _is_items(given):
            messages += [_message(one) for one in given]
        elif isinstance(given, list) and all(isinstance(one, str) for one in given):
            messages.append({"role": "user", "content": "\n".join(given)})
        elif given is not None:
            messages.append({"role": "user", "content": given})
    config = body.get("generationConfig")
    for of in (body, config if isinstance(config, dict) else {}):
        for name in ("max_output_tokens", "maxOutputTokens"):
            if isinstance(of.get(name), int):
                bounds["max_tokens"] = of[name]
    return messages, bounds


def _is_items(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Gemini's contents have `parts` and speak as `model`."""
    return {**item, "content": item["parts"]} if "parts" in item else item
