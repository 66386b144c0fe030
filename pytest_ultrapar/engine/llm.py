"""The client that an episode talks to: bound to one model, silent about limits and retries."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from pytest_ultrapar.apis.reply import Messages, Reply
from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.broker.protocol import Most
from pytest_ultrapar.engine.blocking import run_blocking, waiting
from pytest_ultrapar.engine.endpoints import Endpoint, check_request, conversation_of, request_body
from pytest_ultrapar.engine.native import NativeClient
from pytest_ultrapar.engine.sdk_clients import anthropic_client, httpx_client, openai_client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import ModuleType

    import anthropic
    import openai

    from pytest_ultrapar.engine.blocking import Wait
    from pytest_ultrapar.engine.gateway import Door
    from pytest_ultrapar.engine.sender import Sender
    from pytest_ultrapar.errors import BadRequestError, PromptRefused

T = TypeVar("T")
RESERVED = frozenset({"model", "messages", "stream", "stream_options"})
"""Parameters that a suite may not set, whatever the API: they are the client's own business."""


class _Chat(msgspec.Struct, frozen=True):
    """A conversation to be answered."""

    messages: Messages
    parameters: dict[str, Any]
    tokens: int
    most: Most | None = None
    pieces: None = None

    def begin(self) -> bool:
        return True

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        return endpoint, request_body(endpoint, self.messages, self.parameters)


class Llm:
    """A client bound to one model: the case's, or one in a role; used on the engine's loop.

    Attributes:
        model: Its name in the pool.
    """

    def __init__(self, sender: Sender, case: Llm | None = None) -> None:
        """Make a client; the engine does, one per episode, and `role` for each role.

        Args:
            sender: The episode's, or that of a role.
            case: The case's own client, for one in a role.
        """
        self.model = sender.model
        self.conversation = sender.conversation
        self._sender = sender
        self._native_client: NativeClient | None = None
        self._case = case
        self._roles: dict[str, Llm] = {}
        self._door: Door | None = None

    def role(self, name: str) -> Llm:
        """A client for the model that the pool gives a role, such as a judge; always the same one.

        Its requests are the case's, but have leases, a lane, a conversation and a transcript of
        their own, and no group of the case binds them. While they wait or are answered the case
        holds no seat of its own model. What ends the case ends it here, too, with two differences:
        the `kind` of its `infra` begins with the role's name, and a prompt that is refused for good
        is `infra` as well, since it says nothing of the case's model.

        Args:
            name: As in the pool's `[role.<name>]`.

        Raises:
            ConfigError: The pool has no such role; the message names those it has.
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
        """The model's answer to a conversation.

        Waits as long as the pool's limits ask, tries again where that may help, and always on the
        same model.

        Args:
            messages: The whole conversation so far, as the chat-completions API has it; a text is
                one message of the user. Lone surrogates, which no request can hold, are sent as
                text that shows them.
            system: A message of the system that goes before them.
            parameters: Further parameters of the API, such as `temperature`, passed on as they are.

        Raises:
            InfraError: The request could not be answered; the case becomes `infra` whatever the
                episode does next.
            PromptRefused: The provider refused the prompt for good; the case becomes `unsolved`.
            BadRequestError: The API calls the request malformed; the case becomes an `error`.
            TypeError: A parameter is reserved (`model`, `messages`, `stream`, `stream_options`),
                is there twice under two names, or cannot be sent as JSON, the messages are neither
                text nor list of dicts, or have a message of the system beside `system`.
            ValueError: A parameter is no finite number.
        """
        self.conversation.n_unawaited += 1
        return self._chat(messages, system, parameters)

    async def _chat(
        self, messages: Messages | str, system: str | None, parameters: dict[str, Any]
    ) -> Reply:
        conversation = self.conversation
        conversation.n_unawaited -= 1
        # An episode that caught it: its case is lost, and more requests would cost for nothing.
        conversation.check()
        reserved = RESERVED & parameters.keys()
        if reserved:
            raise TypeError(
                f"llm.chat() got {min(reserved)!r}, which is reserved; other parameters are "
                "passed on"
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
        """What a function that blocks returns or raises, called in a thread of its own.

        What it prints and logs is the case's, and context variables are those of the caller. No
        number of threads is kept to: as many functions run at once as cases call. Where the case
        or this call is cancelled, nothing waits for the function: the next call of a client of
        `sync` raises `asyncio.CancelledError` in it.

        Args:
            function: Called with all that follows; `llm.sync` is the client for it.
            args: Its arguments.
            kwargs: Its arguments by name.

        Raises:
            TypeError: The function is async.
        """
        if iscoroutinefunction(function):
            raise TypeError("llm.run() calls plain functions; write `await function(...)`")
        return await run_blocking(function, *args, **kwargs)

    @property
    def sync(self) -> SyncLlm:
        """This client for functions that `run` calls: the same methods, without `await`."""
        return SyncLlm(self, waiting(self._sender.loop, lambda: self._sender.sends.is_closed))

    @property
    def base_url(self) -> str:
        """Where other processes and clients with an HTTP library of their own send requests.

        They get there with `api_key`, in any of the APIs that the lanes of the case's model speak,
        until the episode ends. The first call in a process starts its server.
        """
        self._opened()
        return f"{self._sender.parts.gateway.open()}/v1"

    @property
    def api_key(self) -> str:
        """What to give clients as their key: they never see the pool's.

        It is worth something in this episode alone.
        """
        return self._opened().token

    @property
    def refused(self) -> PromptRefused | BadRequestError | None:
        """What was wrong with the last request that came by `base_url`, if anything was.

        No exception says so in an episode whose request was another process's.
        """
        return None if self._door is None else self._door.fault

    def _opened(self) -> Door:
        if self._door is None:
            name = f"case {self._sender.case_id}"
            self._door = self._sender.parts.gateway.admit(self.native(), name)
            self.native().keys.add(self._door.token)
        return self._door

    def httpx_client(self, library: ModuleType | None = None) -> Any:  # noqa: ANN401 - of either library
        """An HTTP client for SDKs, whose every request is sent on the pool's lanes.

        Each waits as long as the limits ask, goes to the lane's address with the lane's key, and is
        tried again where that may help, up to the first piece of a stream. Keys, addresses, and
        names of models that an SDK has from elsewhere are refused. It is for the episode's own
        event loop, and ends with the episode.

        Args:
            library: `httpx`, where an SDK takes clients of that; None: httpx2.

        Raises:
            ConfigError: httpx2 is not installed.
        """
        return httpx_client(self.native(), library)

    def openai(self) -> openai.AsyncOpenAI:
        """OpenAI's client, as `httpx_client` says; on Azure's lanes, too.

        Raises:
            ConfigError: The package `openai` is not installed.
            BadRequestError: A lane of the model has an API that this client does not speak; the
                case becomes an `error`.
        """
        return cast("openai.AsyncOpenAI", openai_client(self.native()))

    def anthropic(self) -> anthropic.AsyncAnthropic:
        """Anthropic's client, as `httpx_client` says.

        Raises:
            ConfigError: The package `anthropic` is not installed.
            BadRequestError: A lane of the model has an API that this client does not speak; the
                case becomes an `error`.
        """
        return cast("anthropic.AsyncAnthropic", anthropic_client(self.native()))

    def native(self) -> NativeClient:
        """What answers requests that are written already; for clients, not for suites."""
        if self._native_client is None:
            self._native_client = NativeClient(self._sender)
        return self._native_client

    async def close(self) -> None:
        """End all requests that the episode left behind, so that its record has each of them."""
        for role in self._roles.values():
            await role.close()
        if self._door is not None:
            self._sender.parts.gateway.dismiss(self._door)
        await self._sender.close()


class SyncLlm:
    """`Llm` for functions that `llm.run` calls: the same client, whose calls block their thread.

    Once the case has ended, or `await llm.run(...)` was cancelled, every call raises
    `asyncio.CancelledError`, which `except Exception` lets pass.

    Attributes:
        model: Its name in the pool.
    """

    def __init__(self, llm: Llm, wait: Wait) -> None:
        """Make a client; `Llm.sync` does."""
        self.model = llm.model
        self._llm = llm
        self._wait = wait

    def chat(
        self,
        messages: Messages | str,
        *,
        system: str | None = None,
        **parameters: Any,  # noqa: ANN401 - as `Llm.chat` has it
    ) -> Reply:
        """As `Llm.chat`.

        Raises:
            asyncio.CancelledError: The case no longer waits for this function.
            RuntimeError: It was called on the loop of all episodes, which it would block.
        """
        return cast("Reply", self._wait(self._llm.chat(messages, system=system, **parameters)))

    def role(self, name: str) -> SyncLlm:
        """As `Llm.role`."""
        return self._llm.role(name).sync

    def httpx_client(self, library: ModuleType | None = None) -> Any:  # noqa: ANN401 - of either library
        """An `httpx2.Client`, or `library`'s, as `Llm.httpx_client` says."""
        return httpx_client(self._llm.native(), library, self._wait)

    def openai(self) -> openai.OpenAI:
        """OpenAI's client `OpenAI`, as `Llm.openai` says."""
        return cast("openai.OpenAI", openai_client(self._llm.native(), self._wait))

    def anthropic(self) -> anthropic.Anthropic:
        """Anthropic's client `Anthropic`, as `Llm.anthropic` says."""
        return cast("anthropic.Anthropic", anthropic_client(self._llm.native(), self._wait))
