"""A chat-completions server for whole pytest runs: the prompt's last message is a command.

A prompt is `WORD TEXT`, or `WORD:N TEXT` for the first N times that it comes; after them, and for
`say`, the answer is TEXT. As real servers do, it continues when a client has left. It understands:

    say TEXT           answers with TEXT; an unknown word is answered with the whole prompt
    status N TEXT      answers with HTTP status N; the error quotes TEXT and the caller's key
    once N TEXT        answers with N the first time this prompt comes (with Retry-After 0.05), then
                       says TEXT
    context | filter   refuses the prompt each time
    garbage            answers 200 with a body that is not a completion
    drop               closes the connection without an answer
    hang               never answers
    later TEXT         never answers the first time this prompt comes, then says TEXT
    drip               sends a byte now and then, forever
    slow SECONDS TEXT  answers with TEXT after that time
    wait VALUE | TEXT  refuses with 429 and Retry-After: VALUE the first time, then says TEXT
    use IN OUT TEXT    answers with TEXT and reports this usage, in and out
    count IN TEXT      answers with TEXT and reports IN, which may be any JSON, as its usage

and all faults of `faults.byte_faults`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.faults.byte_faults import FAULTS, Asked, Fault, completion, leave, refuse, say
from tests.faults.request_log import RequestLog, Seen, Work, read_request_log
from tests.raw_server import Peer, RawServer, Request, json_response, response

ROOT = Path(__file__).parents[1]


class ScriptedServer(RawServer):
    """The server, in a thread of this process.

    Attributes:
        log: The requests that it saw.
        faults: The fault of each word; tests may add their own.
        served: Its answer about its models, without a key.
        weather: Called first for every request: a fault that applies to any prompt.
        key_names: The name of a key by its token; other keys have their tokens as names.
    """

    def __init__(
        self,
        key_names: Mapping[str, str] | None = None,
        *,
        log_path: Path | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(self._answered, port=port)
        self.key_names = key_names or {}
        self._log_path = log_path
        self.reset()

    def reset(self) -> None:
        """Forget all requests and all settings of a test."""
        self.requests.clear()
        self.log = RequestLog(self._log_path)
        self.faults: dict[str, Fault] = FAULTS | WORDS
        self.served = ["Org/Model-1B"]
        self.weather: Callable[[Asked], Fault | None] = lambda _: None
        self._times: Counter[str] = Counter()
        self._open: dict[Peer, Seen] = {}

    @property
    def prompts(self) -> list[str]:
        return [seen.prompt for seen in self.log.requests]

    @property
    def tokens(self) -> list[str]:
        return [seen.key for seen in self.log.requests]

    @property
    def work(self) -> Work:
        return self.log.work

    @property
    def used(self) -> list[tuple[float, int]]:
        """The time of each `use`, and its tokens."""
        return [
            (seen.t_s, sum(map(int, seen.prompt.split()[1:3])))
            for seen in self.log.requests
            if seen.prompt.startswith("use ")
        ]

    def wait_for(self, seen: Callable[[list[str]], bool], timeout_s: float = 120) -> bool:
        """Wait until the prompts so far satisfy `seen`; return False after the timeout."""
        return self.log.wait_until(lambda: seen(self.prompts), timeout_s)

    async def _answered(self, peer: Peer, request: Request) -> None:
        log = self.log
        self._note_departures()
        if request.method == "GET":
            assert "authorization" not in request.headers
            await peer.send(json_response({"data": [{"id": name} for name in self.served]}))
            return
        body = request.json()
        prompt = body["messages"][-1]["content"]
        token = request.headers["authorization"].removeprefix("Bearer ")
        key = self.key_names.get(token, token)
        self._times[prompt] += 1
        seen = self._open[peer] = log.arrived(peer.number, prompt, key, body["model"])
        word, _, words = prompt.partition(" ")
        asked = Asked(
            prompt,
            token,
            body["model"],
            number=seen.number,
            nth=self._times[prompt],
            words=words,
            t_s=time.monotonic() - log.requests[0].t_s,
        )
        left = False
        try:
            await self._fault(peer, asked, word)(peer, asked)
        except OSError:
            left = True
        finally:
            self._open.pop(peer, None)
            log.ended(seen, status=peer.status, left=left)
            log.work.now -= 1

    def _fault(self, peer: Peer, asked: Asked, word: str) -> Fault:
        if peer.doomed:
            return leave
        struck = self.weather(asked)
        if struck is not None:
            return struck
        name, _, times = word.partition(":")
        if times and asked.nth > int(times):
            return say
        return self.faults.get(name, _repeat)

    def _note_departures(self) -> None:
        # A client that left freed its seat before it sent the next request, even if the server
        # notices the two in another order.
        for peer, seen in self._open.items():
            if peer.has_left():
                self.log.ended(seen, status=peer.status, left=True)


def refusing(
    status: int, *whom: str, message: str = "wrong key", headers: Sequence[bytes] = ()
) -> Callable[[Asked], Fault | None]:
    """Weather for the keys and models of these names: all their requests are refused."""
    refused = refuse(status, *headers, message=message)
    return lambda asked: refused if {asked.token, asked.model} & set(whom) else None


# -- words with a normal answer --------------------------------------------------------------------


async def _repeat(peer: Peer, asked: Asked) -> None:
    await peer.send(response(completion(asked.prompt)))


async def _status(peer: Peer, asked: Asked) -> None:
    status, _, words = asked.words.partition(" ")
    message = f"as you wish: {words}, said with {asked.token}"
    await refuse(int(status), message=message)(peer, asked)


async def _once(peer: Peer, asked: Asked) -> None:
    status, _, words = asked.words.partition(" ")
    await _at_first(peer, asked, int(status), "0.05", words)


async def _wait(peer: Peer, asked: Asked) -> None:
    value, _, words = asked.words.partition(" | ")
    await _at_first(peer, asked, 429, value, words)


async def _at_first(peer: Peer, asked: Asked, status: int, retry_after: str, words: str) -> None:
    if asked.nth > 1:
        await peer.send(response(completion(words)))
    else:
        await refuse(status, b"Retry-After: " + retry_after.encode())(peer, asked)


async def _garbage(peer: Peer, _: Asked) -> None:
    await peer.send(response(b"<html>not json</html>", b"content-type: text/plain"))


async def _hang(_: Peer, __: Asked) -> None:
    await asyncio.Event().wait()


async def _later(peer: Peer, asked: Asked) -> None:
    await (_hang if asked.nth == 1 else say)(peer, asked)


async def _drip(peer: Peer, _: Asked) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await peer.send(b"1\r\n \r\n")
        await asyncio.sleep(0.05)


async def _slow(peer: Peer, asked: Asked) -> None:
    seconds, _, words = asked.words.partition(" ")
    await asyncio.sleep(float(seconds))
    await peer.send(response(completion(words)))


async def _use(peer: Peer, asked: Asked) -> None:
    n_in, n_out = map(int, asked.words.split()[:2])
    await peer.send(response(completion(asked.words, n_in, n_out)))


async def _count(peer: Peer, asked: Asked) -> None:
    figure, _, words = asked.words.partition(" ")
    whole = completion(words)
    odd = b'"prompt_tokens": %b' % figure.encode()
    await peer.send(response(whole.replace(b'"prompt_tokens": 3', odd)))


WORDS: dict[str, Fault] = {
    "status": _status,
    "once": _once,
    "wait": _wait,
    "context": refuse(400, code="context_length_exceeded", message="too long"),
    "filter": refuse(400, code="content_filter", message="no"),
    "garbage": _garbage,
    "drop": leave,
    "hang": _hang,
    "later": _later,
    "drip": _drip,
    "slow": _slow,
    "use": _use,
    "count": _count,
}


# -- as a process ----------------------------------------------------------------------------------


class ScriptedProcess:
    """The same server in its own process, so that it can be stopped."""

    def __init__(self, directory: Path, key_names: Mapping[str, str]) -> None:
        self._log_path = directory / "scripted-server.jsonl"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scripted_server", self._log_path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for token, name in key_names.items():
            self._process.stdin.write(f"{token} {name}\n")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.port = int(self._process.stdout.readline())

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def log(self) -> RequestLog:
        return read_request_log(self._log_path)

    def halt(self) -> None:
        """Send SIGSTOP: connections stay, the kernel accepts new ones, no answer comes."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()


def main() -> None:
    """Serve until killed or until the parent process is gone."""
    names = dict(line.split() for line in iter(lambda: sys.stdin.readline().strip(), ""))
    with ScriptedServer(names, log_path=Path(sys.argv[1])) as server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
