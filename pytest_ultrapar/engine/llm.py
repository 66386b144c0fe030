"""The client of an episode. It is bound to one model, and handles all limits and retries."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pytest_ultrapar.apis.reply import Messages, Reply
from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.broker.protocol import TokenBounds
from pytest_ultrapar.engine.blocking import run_blocking, waiting
from pytest_ultrapar.engine.endpoints import Endpoint, check_request, conversation_of, request_body
from pytest_ultrapar.engine.sdk_clients import anthropic_client, httpx_client, openai_client
from pytest_ultrapar.engine.sdk_sender import SdkSender

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import ModuleType

    import anthropic
    import openai

    from pytest_ultrapar.engine.blocking import Wait
    from pytest_ultrapar.engine.gateway import GatewaySession
    from pytest_ultrapar.engine.sender import Sender
    from pytest_ultrapar.errors import BadRequestError, PromptRefused

T = TypeVar("T")
RESERVED = frozenset({"model", "messages", "stream", "stream_options"})
"""Parameters that a suite must not set, regardless of the API, because the client sets them."""


class _Chat(msgspec.Struct, frozen=True):
    """A conversation to send."""

    messages: Messages
    parameters: dict[str, Any]
    tokens: int
    most: TokenBounds | None = None
    pieces: None = None

    def begin(self) -> bool:
        return True

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        return endpoint, request_body(endpoint, self.messages, self.parameters)


class Llm:
    """A client for the case's model, or for the model of a role; used on the engine's loop.

    Attributes:
        model: The model's name in the pool.
    """

    def __init__(self, sender: Sender, case: Llm | None = None) -> None:
        """Make a client. The engine makes one for each episode, and `role` makes one for each role.

        Args:
            sender: The sender of the episode or of a role.
            case: The case's own client, if this client is for a role.
        """
        self.model = sender.model
        self.conversation = sender.conversation
        self._sender = sender
        self._native_client: SdkSender | None = None
        self._case = case
        self._roles: dict[str, Llm] = {}
        self._session: GatewaySession | None = None

    def role(self, name: str) -> Llm:
        """Return the client for a role's model, such as a judge. Each call returns the same client.

        The requests belong to the case, but have their own leases, lane, conversation and
        transcript, and the case's group does not apply to them. While they are waiting or in
        flight, the case does not occupy a seat of its own model. A failure ends the case as usual,
        with two differences. The `kind` of an `infra` begins with the role's name. If the role's
        model refuses a prompt, the case becomes `infra`, because the refusal says nothing about the
        case's own model.

        Args:
            name: The name in the pool's `[role.<name>]`.

        Raises:
            ConfigError: The pool has no such role; the message lists its roles.
        """
        __tracebackhide__ = True
        if self._case is not None:
            return self._case.role(name)
        if name not in self._roles:
            self._roles[name] = Llm(self._sender.in_role(name), self)
        return self._roles[name]

    def chat(
        self,
        messages: Messages | str,
        *,
        system: str | None = None,
        **parameters: Any,  # noqa: ANN401
    ) -> Coroutine[Any, Any, Reply]:
        """Send a conversation and return the model's answer.

        The call waits as long as the pool's limits require, and tries again if that may help,
        always with the same model.

        Args:
            messages: The whole conversation so far, in the format of the chat-completions API. A
                string is sent as one user message. Unpaired surrogates, which no request can
                contain, are sent as visible text.
            system: A system message to put first.
            parameters: Other parameters of the API, such as `temperature`, passed on unchanged.

        Raises:
            InfraError: The request got no answer. The case becomes `infra`, even if the episode
                catches the error and continues.
            PromptRefused: The provider refused the prompt; the case becomes `unsolved`.
            BadRequestError: The API rejected the request as malformed; the case becomes an `error`.
            TypeError: A parameter is reserved (`model`, `messages`, `stream`, `stream_options`), is
                given under two names, or cannot be sent as JSON. The error is also raised if the
                messages are neither a string nor a list of dicts, or contain a system message
                besides `system`.
            ValueError: A parameter is not a finite number.
        """
        self.conversation.n_unawaited += 1
        return self._chat(messages, system, parameters)

    async def _chat(
        self, messages: Messages | str, system: str | None, parameters: dict[str, Any]
    ) -> Reply:
        conversation = self.conversation
        conversation.n_unawaited -= 1
        # Even if the episode caught its failure, the case is lost, so more requests would be a
        # waste.
        conversation.check()
        reserved = RESERVED & parameters.keys()
        if reserved:
            raise TypeError(
                f"llm.chat() got {min(reserved)!r}, which the client sets itself; you can set any "
                "other parameter"
            )
        messages = conversation_of(messages, system)
        check_request(parameters)
        turn = self._sender.next_turn(messages)
        estimates, tokens, most = self._sender.parts.tokens, 0, None
        if estimates is not None:
            asked = asked_of({**parameters, "messages": messages})
            tokens = estimates.of_request(self.model, asked)
            most = estimates.most(self.model, asked)
        reply, _ = await self._sender.answer(turn, _Chat(messages, parameters, tokens, most))
        if not isinstance(reply, Reply):
            conversation.fail(reply)
            raise reply
        if estimates is not None:
            is_first = turn == 0 and not self._sender.role
            estimates.learn(self.model, asked, reply, is_first=is_first)
        conversation.heard(turn, reply)
        return reply

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - the function's own
        """Call a blocking function in a new thread; return its result or raise its exception.

        The function's output and log belong to the case, and it sees the caller's context
        variables. Every call gets its own thread, and the number of threads is not limited. If the
        case or this call is cancelled, neither waits for the function. The next time the function
        calls a `sync` client, that call raises `asyncio.CancelledError`.

        Args:
            function: The function to call. Inside it, use the client `llm.sync`.
            args: The function's arguments.
            kwargs: The function's keyword arguments.

        Raises:
            TypeError: The function is async.
        """
        if iscoroutinefunction(function):
            raise TypeError("llm.run() got an async function; write `await function(...)` instead")
        return await run_blocking(function, *args, **kwargs)

    @property
    def sync(self) -> SyncLlm:
        """The same client, for functions that `run` calls. Call its methods without `await`."""
        return SyncLlm(self, waiting(self._sender.loop, lambda: self._sender.sends.is_closed))

    @property
    def base_url(self) -> str:
        """The base URL for other processes, and for clients that use their own HTTP library.

        Such clients use it together with `api_key` until the episode ends. They can use any API
        that the lanes of the case's model support. The first access in a process starts the server
        of that process.
        """
        self._opened()
        return f"{self._sender.parts.gateway.open()}/v1"

    @property
    def api_key(self) -> str:
        """The API key for clients of `base_url`, which never see the pool's keys.

        It is valid only during this episode.
        """
        return self._opened().token

    @property
    def refused(self) -> PromptRefused | BadRequestError | None:
        """The error, if any, in the last request that came through `base_url`; otherwise None.

        A failed request from another process raises no exception in the episode, so check this
        instead.
        """
        return None if self._session is None else self._session.fault

    def _opened(self) -> GatewaySession:
        if self._session is None:
            name = f"case {self._sender.case_id}"
            self._session = self._sender.parts.gateway.admit(self.native(), name)
            self.native().keys.add(self._session.token)
        return self._session

    def httpx_client(self, library: ModuleType | None = None) -> Any:  # noqa: ANN401 - of either library
        """Return an HTTP client for SDKs. It sends every request on one of the pool's lanes.

        Each request waits as long as the limits require, and goes to the lane's address with the
        lane's key. It is tried again if that may help, but not after the first piece of a stream
        has arrived. A request with another key, address or model name is refused. Use the client on
        the episode's own event loop. It works until the episode ends.

        Args:
            library: The module `httpx`, if the SDK accepts clients of httpx; None means httpx2.

        Raises:
            ConfigError: httpx2 is not installed.
        """
        return httpx_client(self.native(), library)

    def openai(self) -> openai.AsyncOpenAI:
        """Return OpenAI's client, which uses `httpx_client`; it also works with Azure's lanes.

        Raises:
            ConfigError: The package `openai` is not installed.
            BadRequestError: A lane of the model has an API that this client does not support; the
                case becomes an `error`.
        """
        return cast("openai.AsyncOpenAI", openai_client(self.native()))

    def anthropic(self) -> anthropic.AsyncAnthropic:
        """Return Anthropic's client, which uses `httpx_client`.

        Raises:
            ConfigError: The package `anthropic` is not installed.
            BadRequestError: A lane of the model has an API that this client does not support; the
                case becomes an `error`.
        """
        return cast("anthropic.AsyncAnthropic", anthropic_client(self.native()))

    def native(self) -> SdkSender:
        """Return the client that sends the requests of SDKs. Suites do not need to call this."""
        if self._native_client is None:
            self._native_client = SdkSender(self._sender)
        return self._native_client

    async def close(self) -> None:
        """Cancel all requests that the episode left unfinished.

        The episode's record contains these requests.
        """
        while self._roles:  # a client and its roles refer to each other
            await self._roles.popitem()[1].close()
        if self._session is not None:
            self._sender.parts.gateway.dismiss(self._session)
        await self._sender.close()


class SyncLlm:
    """The synchronous `Llm`, for functions that `llm.run` calls. Each call blocks its thread.

    Once the case has ended, or its `await llm.run(...)` was cancelled, every call raises
    `asyncio.CancelledError`, which `except Exception` does not catch.

    Attributes:
        model: The model's name in the pool.
    """

    def __init__(self, llm: Llm, wait: Wait) -> None:
        """Make a client. Only `Llm.sync` calls this."""
        self.model = llm.model
        self._llm = llm
        self._wait = wait

    def chat(
        self,
        messages: Messages | str,
        *,
        system: str | None = None,
        **parameters: Any,  # noqa: ANN401 - as for `Llm.chat`
    ) -> Reply:
        """Send a conversation and return the model's answer; see `Llm.chat`.

        Raises:
            asyncio.CancelledError: The case no longer waits for this function.
            RuntimeError: The call came from the loop of all episodes, which it would block.
        """
        return cast("Reply", self._wait(self._llm.chat(messages, system=system, **parameters)))

    def role(self, name: str) -> SyncLlm:
        """Return the client for the model of a role; see `Llm.role`."""
        return self._llm.role(name).sync

    def httpx_client(self, library: ModuleType | None = None) -> Any:  # noqa: ANN401 - of either library
        """Return an `httpx2.Client`, or a `Client` of `library`; see `Llm.httpx_client`."""
        return httpx_client(self._llm.native(), library, self._wait)

    def openai(self) -> openai.OpenAI:
        """Return OpenAI's synchronous client, `OpenAI`; see `Llm.openai`."""
        return cast("openai.OpenAI", openai_client(self._llm.native(), self._wait))

    def anthropic(self) -> anthropic.Anthropic:
        """Return Anthropic's synchronous client, `Anthropic`; see `Llm.anthropic`."""
        return cast("anthropic.Anthropic", anthropic_client(self._llm.native(), self._wait))
