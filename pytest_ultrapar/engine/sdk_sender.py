"""Send requests that a provider's own client has written, on a lane of the case's model.

`Sender` handles limits, retries and attempts, as for every request. The difference is that the
client, not the plugin, reads the answer. So if the provider reports an error in the request, the
client gets the provider's own message. Once a request has been sent, this module raises only
failures that the request did not cause.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.apis.server_sent_events import MaskedEvents, without_usage
from pytest_ultrapar.engine.answers import Answer, ClientAnswer, StreamRelay
from pytest_ultrapar.engine.sdk_request import (
    POOL_KEY,
    SdkRequest,
    check_client,
    read_request,
)
from pytest_ultrapar.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.engine.sender import Sender

KEPT_TOKENS = 4000
"""How many tokens to assume for a conversation that the provider stores, until an answer reports
their number."""
_NOT_HANDED_ON = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection", "set-cookie"}
)
"""Headers of an answer that the SDK does not get. They describe the answer's original encoding, or
the plugin's connection to the provider."""
_ANY_BYTES = ("utf-8", "surrogateescape")
_ONLY_OUR_RETRIES = {"x-should-retry": "false"}


class SdkSender:
    """Answers the requests that SDK clients make in one episode; used only on the engine's loop.

    Attributes:
        keys: The API keys that the episode's clients may send. They are not the pool's keys.
        models: The names of the models that these clients may use.
    """

    def __init__(self, sender: Sender) -> None:
        """Make the sender for the SDK clients of an episode.

        Args:
            sender: The episode's own sender, which sends the requests.
        """
        self._sender = sender
        self._model = sender.model
        self._conversation = sender.conversation
        self._tokens = sender.parts.tokens
        self._masked = sender.parts.masked
        self._lanes = [one for one in sender.parts.endpoints.values() if one.model == sender.model]
        self._loop = sender.loop
        self._kept: dict[str | None, int] = {}
        self.keys = {POOL_KEY}
        self.models = (sender.model,)

    def must_serve(self, path: str, whose: str) -> None:
        """Make sure that every lane of the model serves a resource.

        Args:
            path: The resource, such as `/embeddings`.
            whose: The client that needs the resource, for the message.

        Raises:
            BadRequestError: A lane does not serve the resource; the case becomes an `error`.
        """
        for lane in self._lanes:
            if path not in lane.api.serves:
                served = ", ".join(sorted(lane.api.serves)) or "nothing"
                error = BadRequestError(
                    f"{whose} does not work with the lane {lane.lane}: the lane's API does not "
                    f"serve {path}; it serves {served}"
                )
                self._conversation.fail(error)
                raise error

    def checked(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> SdkRequest:
        """Check a request of an SDK client that the suite has made. Arguments are as for `read`.

        Raises:
            InfraError: The episode has already failed. Its own failure is raised, which may also be
                a `PromptRefused` or a `BadRequestError`.
            BadRequestError: The request must not be sent; the case becomes an `error`.
            RuntimeError: The call was not made on the episode's event loop.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("a client made with llm was used outside its episode's event loop")
        self._conversation.check()
        try:
            check_client(url, headers, self.keys)
            return self.read(method, url, headers, body)
        except BadRequestError as error:
            self._conversation.fail(error)
            raise

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> SdkRequest:
        """Read a request to the case's model. The arguments are as for `read_request`.

        Raises:
            BadRequestError: The request must not be sent.
        """
        return read_request(
            method,
            url,
            headers,
            body,
            model=self._model,
            lanes=self._lanes,
            tokens=self._tokens,
            kept=self._kept_by_provider,
            role=self._sender.role,
        )

    async def answer(self, asked: SdkRequest) -> ClientAnswer:
        """Return the provider's answer.

        A stream is returned as soon as its first part can be passed on.

        Raises:
            InfraError: There is no answer. The case becomes `infra`, even if the SDK hides the
                error.
            ClientGoneError: The client is no longer waiting; nothing was sent.
            RuntimeError: The episode has ended.
        """
        self._conversation.check()
        turn = self._sender.next_turn(asked.asked.messages)
        task = self._loop.create_task(self._answered(turn, asked))
        task.add_done_callback(_over)
        if asked.pieces is not None:
            shown = self._sender.parts.shown
            wanted = without_usage if asked.asks_usage else bytes
            relay = StreamRelay(asked.pieces, task, MaskedEvents(self._masked), shown, wanted)
            try:
                if await relay.begin():
                    headers = self._handed_on(asked.pieces.headers or {})
                    return ClientAnswer(asked.pieces.status, headers, relay)
            except asyncio.CancelledError:
                relay.close()
                raise
        return await task

    async def _answered(self, turn: int, asked: SdkRequest) -> ClientAnswer:
        result, answer = await self._sender.answer(turn, asked)
        assert isinstance(answer, Answer)
        headers, body = self._handed_on(answer.headers), self._masked(answer.body)
        if isinstance(result, Reply):
            if asked.pieces is None:
                # A client that did not ask for a stream could not read it.
                headers["content-type"] = "application/json"
                if answer.stream is not None:
                    body = self._masked(answer.one_body(result))
            # Embeddings say nothing about the length of the model's answers.
            if self._tokens is not None and result.tokens_out:
                is_first = turn == 0 and not self._sender.role
                self._tokens.learn(self._model, asked.asked, result, is_first=is_first)
            if result.tokens_in is not None and result.tokens_out is not None:
                names = {result.id, asked.asked.goes_on} - {None}
                self._kept |= dict.fromkeys(names, result.tokens_in + result.tokens_out)
            self._conversation.heard(turn, result)
            return ClientAnswer(answer.status, headers, body)
        return ClientAnswer(answer.status, {**headers, **_ONLY_OUR_RETRIES}, body, result)

    def _kept_by_provider(self, name: str) -> int:
        """Estimate the tokens of a conversation that is stored at the provider.

        If the episode has used this conversation, this is the number that the last answer in it
        reported. Otherwise, it is the largest number reported so far for any conversation in the
        episode, or `KEPT_TOKENS` before the first report.
        """
        return self._kept.get(name, max(self._kept.values(), default=KEPT_TOKENS))

    def _handed_on(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {
            name.lower(): self._masked(value.encode(*_ANY_BYTES)).decode(*_ANY_BYTES)
            for name, value in headers.items()
            if name.lower() not in _NOT_HANDED_ON
        }


def _over(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        # Mark the error as retrieved: the case has recorded it, even if no client waits.
        task.exception()
