"""A foreign chat-completions server for tests: it does what the prompt's last message says.

Another stack than the simulator's, so that the two cannot share a misunderstanding. It works on
when a client has left, as real servers do. It understands:

    say WORDS          answers with WORDS
    status N WORDS     answers with HTTP status N; the error quotes WORDS and the caller's key
    once N WORDS       answers with N the first time this prompt comes (with Retry-After 0.05), then
                       says WORDS
    context | filter   refuses the prompt for good
    garbage            answers 200 with something that is no completion
    drop               closes the connection without an answer
    hang               never answers
    later WORDS        never answers the first time this prompt comes, then says WORDS
    drip               sends a byte now and then, for ever
    slow SECONDS WORDS answers with WORDS after that time
    wait VALUE | WORDS refuses with 429 and Retry-After: VALUE the first time, then says WORDS
    use IN OUT WORDS   answers with WORDS and says that it took so many tokens, in and out
    count IN WORDS     answers with WORDS and says that it took IN tokens, whatever JSON that is
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Work:
    """Requests that a server works on: now, and at once at most; those whose client left, too."""

    now: int = 0
    most: int = 0


@dataclass
class ScriptedServer:
    """A server in a thread of this process."""

    port: int = 0
    prompts: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    refused_tokens: dict[str, int] = field(default_factory=dict)
    refused_words: dict[str, str] = field(default_factory=dict)
    refused_headers: dict[str, str] = field(default_factory=dict)
    missing_models: set[str] = field(default_factory=set)
    broken_models: dict[str, int] = field(default_factory=dict)
    status_of: Callable[[int], int | None] = lambda arrival: None
    used: list[tuple[float, int]] = field(default_factory=list)
    """When each `use` came, and the tokens that it took."""
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def reset(self) -> None:
        self.prompts.clear()
        self.tokens.clear()
        self.used.clear()
        self.work = Work()
        self.refused_tokens.clear()
        self.refused_words.clear()
        self.refused_headers.clear()
        self.missing_models.clear()
        self.broken_models.clear()
        self.status_of = lambda arrival: None
        self._seen.clear()

    def wait_for(self, seen: Callable[[list[str]], bool], timeout_s: float = 120) -> bool:
        """Wait until the prompts that came satisfy `seen`; False when they did not in time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: seen(self.prompts), timeout_s)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._work)
        # Some answers never come on purpose; the server's end must not wait for them.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        hanging = asyncio.all_tasks(self._loop)
        for task in hanging:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*hanging, return_exceptions=True))
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _refusal(self, token: str, model: str) -> web.Response | None:
        """What is said to anybody, whatever the prompt; None: nothing."""
        if token in self.refused_tokens:
            words = self.refused_words.get(token, "wrong key")
            return _error(self.refused_tokens[token], words, self.refused_headers)
        if model in self.missing_models:
            return _error(404, "The deployment does not exist")
        status = self.broken_models.get(model) or self.status_of(len(self.prompts))
        return None if status is None else _error(status, "not now")

    def _at_first(self, prompt: str, status: int, retry_after: str) -> web.Response | None:
        if self._seen[prompt] > 1:
            return None
        return _error(status, "only once", {"Retry-After": retry_after})

    async def _work(self, request: web.Request) -> web.StreamResponse:
        # Some requests hang for ever, and those of an earlier test are not this one's.
        work = self.work
        work.now += 1
        work.most = max(work.now, work.most)
        try:
            return await self._answer(request)
        finally:
            work.now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0912
        body = await request.json()
        prompt = body["messages"][-1]["content"]
        token = request.headers["authorization"].removeprefix("Bearer ")
        with self._arrived:
            self.prompts.append(prompt)
            self.tokens.append(token)
            self._arrived.notify_all()
        self._seen[prompt] += 1
        refusal = self._refusal(token, body["model"])
        if refusal is not None:
            return refusal
        word, _, rest = prompt.partition(" ")
        match word:
            case "status":
                status, _, words = rest.partition(" ")
                return _error(int(status), f"as you wish: {words}, said with {token}")
            case "once":
                status, _, words = rest.partition(" ")
                return self._at_first(prompt, int(status), "0.05") or _say(words)
            case "wait":
                value, _, words = rest.partition(" | ")
                return self._at_first(prompt, 429, value) or _say(words)
            case "context":
                return _error(400, "too long", code="context_length_exceeded")
            case "filter":
                return _error(400, "no", code="content_filter")
            case "garbage":
                return web.Response(text="<html>not json</html>")
            case "drop":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "hang":
                await asyncio.Event().wait()
            case "later":
                if self._seen[prompt] == 1:
                    await asyncio.Event().wait()
                return _say(rest)
            case "drip":
                return await _drip(request)
            case "use":
                n_in, n_out = map(int, rest.split()[:2])
                self.used.append((time.monotonic(), n_in + n_out))
                return _say(rest, n_in, n_out)
            case "count":
                figure, _, words = rest.partition(" ")
                return _say_odd(words, figure)
            case "slow":
                seconds, _, words = rest.partition(" ")
                await asyncio.sleep(float(seconds))
                return _say(words)
        return _say(rest if word == "say" else prompt)


def _say(words: str, n_in: int = 3, n_out: int = 5) -> web.Response:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": words},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out}
    return web.json_response({"id": "x", "choices": [choice], "usage": usage})


def _say_odd(words: str, figure: str) -> web.Response:
    text = _say(words).text
    assert text is not None
    text = text.replace('"prompt_tokens": 3', f'"prompt_tokens": {figure}')
    return web.Response(text=text, content_type="application/json")


def _error(
    status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None
) -> web.Response:
    error = {"message": message, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


async def _drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)
