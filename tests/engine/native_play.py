"""An episode's client against a server of the test, on one seat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from pytest_ultrapar.broker.interface import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.engine.endpoints import endpoints
from pytest_ultrapar.engine.gateway import Gateway
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.loop import engine_context
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts, Sender
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.store.run_directory import SPENDING_FILE
from pytest_ultrapar.system.clock import MonotonicClock
from tests.raw_server import RawServer
from tests.unit.pool_texts import real

TOKEN = "sk-secret-0123456789"
CHAT = "https://pool.invalid/v1/chat/completions"
EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def event(text: str | None = None, **more: Any) -> bytes:
    """An event of a chat's stream."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


LAST = event(finish_reason="stop") + b"data: [DONE]\n\n"
_PATIENCE_S = 60
"""Seconds of patience: each event comes within milliseconds, or never, except on a busy machine."""


async def until(holds: Callable[[], object]) -> None:
    """Wait for an effect of another thread."""
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - another loop changes it
            await asyncio.sleep(0.01)


class Play:
    """The objects of an episode.

    Attributes:
        llm: The episode's client.
        server: The server that answers.
        tokens: The estimate of tokens that requests may use.
        feedback: The feedback that the broker got with each returned lease, in order.
    """

    def __init__(
        self, sender: Sender, server: RawServer, broker: LocalBroker, tokens: TokenEstimates | None
    ) -> None:
        self.llm = Llm(sender)
        self.tokens = tokens
        self.server = server
        self.feedback: list[Feedback] = []
        self._broker = broker
        release = broker.release

        def noting(lease_id: Any, outcome: Any, told: Feedback = NO_FEEDBACK) -> None:
            self.feedback.append(told)
            release(lease_id, outcome, told)

        broker.release = noting  # type: ignore[method-assign]
        self.client = self.llm.httpx_client(httpx)

    async def n_in_flight(self) -> int:
        """The number of seats in use, as the broker counts them."""
        return sum(lane.in_flight for lane in (await self._broker.status()).lanes)

    async def free(self) -> None:
        """Wait until no seat is in use."""
        async with asyncio.timeout(_PATIENCE_S):
            while await self.n_in_flight():  # noqa: ASYNC110 - the broker has no event
                await asyncio.sleep(0.01)

    @property
    def outcomes(self) -> list[str]:
        return [attempt.outcome for attempt in self.llm.conversation.attempts]

    def body(self, **fields: Any) -> dict[str, Any]:
        return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}

    async def ask(self, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=self.body(**fields))

    def stream(self, **fields: Any) -> Any:
        return self.client.stream("POST", CHAT, json=self.body(stream=True, **fields))


def play(
    directory: Path,
    answer: Callable[..., Awaitable[object]],
    scene: Callable[[Play], Awaitable[Any]],
    *,
    provider: str = "",
    api: str = "openai",
    model: str = "",
    path: str = "/v1",
    n_keys: int = 1,
    max_attempts: int = 3,
    gateway: Gateway | None = None,
) -> Any:
    """Play a scene to its end, and check that all seats are free then.

    The first key's secret is `TOKEN`; the other keys' secrets are `TOKEN` and the key's name.
    """
    keys = ", ".join(f'{{ name = "key{n}", env = "KEY_{n}" }}' for n in range(n_keys))

    async def go(server: RawServer) -> Any:
        fields = f"per_key = {{ workers = 1 }}\ntimeout_s = 60\n{provider}"
        url = f'base_url = "{server.url}{path}"'
        text = real(fields, api=api, model=model, url=url, keys=f"[{keys}]")
        file = directory / "pool.toml"
        file.write_text(text, encoding="utf-8")
        pool = load_pool(file, environ={}, overrides=Overrides())
        found = endpoints(
            pool,
            token_of=lambda _, key: TOKEN if key == "key0" else f"{TOKEN}-{key}",
            base_url_of={},
        )
        redactor = Redactor(one.token for one in found.values())
        clock = MonotonicClock()
        spending = str(directory / SPENDING_FILE) if pool.has_budget else None
        settings = BrokerSettings(pool, spending_path=spending)
        broker = LocalBroker(settings, clock, asyncio.get_running_loop())
        http = HttpClient(found.values(), max_connections=4)
        parts = EngineParts(
            port=broker,
            exchange=http,
            endpoints=found,
            retry=RetryPolicy(max_attempts),
            clock=clock,
            next_request_id=iter(range(2, 100)).__next__,
            shown=partial(redactor.short, most=500),
            masked=redactor.bytes,
            tokens=TokenEstimates.of(pool),
            gateway=gateway or Gateway(),
        )
        first = await acquire_lease(broker, LeaseRequest(1, "m", opens=True, case_id="c1"))
        sender = Sender(parts, model="m", group="", case_id="c1", seed=1, first=first)
        told = Play(sender, server, broker, parts.tokens)
        try:
            return await scene(told)
        finally:
            await told.llm.close()
            await parts.gateway.close()
            await told.free()
            await http.close()
            await broker.close()

    with RawServer(answer) as server:
        return engine_context().run(asyncio.run, go(server))
