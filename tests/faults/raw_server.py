"""A server that is wrong at the level of bytes, request by request, as the prompt says.

A prompt is `WORD TEXT` or `WORD:N TEXT`: the fault that the server knows by WORD, always or the
first N times that this prompt comes; after them, and for `say`, the answer is TEXT.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.faults.byte_faults import FAULTS, Fault, leave, say
from tests.faults.peer import Asked, Peer
from tests.faults.request_log import RequestLog, Seen, read_request_log

ROOT = Path(__file__).parents[2]


class RawServer:
    """A server in a thread of this process.

    Attributes:
        log: What it saw.
        faults: Fault by word; tests may add their own.
        weather: Asked first at every request: a fault that strikes whatever the prompt says.
        key_names: Name of a key by its token.
    """

    def __init__(self, *, log_path: Path | None = None) -> None:
        self._log_path = log_path
        self.key_names: Mapping[str, str] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.reset()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self.serve()])

    def reset(self) -> None:
        """Forget all requests and all that a test set up."""
        self.log = RequestLog(self._log_path)
        self.faults: dict[str, Fault] = dict(FAULTS)
        self.weather: Callable[[Asked], Fault | None] = lambda _: None
        self._times: Counter[str] = Counter()
        self._open: dict[Peer, Seen] = {}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def serve(self) -> None:
        """Serve until stopped; on the running loop."""
        self._stopped = asyncio.Event()
        accepting = asyncio.ensure_future(self._accept())
        await self._stopped.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert accepting.cancelled()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        talks: set[asyncio.Task[None]] = set()
        number = 0
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            number += 1
            task = loop.create_task(self._talk(Peer(sock, number)))
            talks.add(task)
            task.add_done_callback(talks.discard)

    async def _talk(self, peer: Peer) -> None:
        try:
            while not peer.is_closed:
                asked = await peer.read_request()
                if asked is None:
                    return
                await self._answer(peer, asked)
        except OSError:
            pass
        finally:
            peer.close()

    async def _answer(self, peer: Peer, asked: Asked) -> None:
        log = self.log
        self._note_who_left()
        name = self.key_names.get(asked.token, "?")
        seen = self._open[peer] = log.arrived(peer.number, asked.prompt, name, asked.model)
        self._times[asked.prompt] += 1
        word, _, words = asked.prompt.partition(" ")
        asked = dataclasses.replace(
            asked,
            nth=self._times[asked.prompt],
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

    def _fault(self, peer: Peer, asked: Asked, word: str) -> Fault:
        if peer.doomed:
            return leave
        struck = self.weather(asked)
        if struck is not None:
            return struck
        name, _, times = word.partition(":")
        if times and asked.nth > int(times):
            return say
        return self.faults.get(name, say)

    def _note_who_left(self) -> None:
        # A client that left made room before it sent the next request, whatever order the two
        # are noticed in.
        for peer, seen in self._open.items():
            if peer.has_left():
                self.log.ended(seen, status=peer.status, left=True)


class RawServerProcess:
    """The same server as a process of its own, so that it can be stopped like one."""

    def __init__(self, directory: Path, key_names: Mapping[str, str]) -> None:
        self._log_path = directory / "faulty-server.jsonl"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.raw_server", self._log_path],
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
        """SIGSTOP: connections stay, the kernel still accepts new ones, nobody answers."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()


def main() -> None:
    """Serve until killed or until whoever started it is gone."""
    server = RawServer(log_path=Path(sys.argv[1]))
    server.key_names = dict(line.split() for line in iter(lambda: sys.stdin.readline().strip(), ""))
    server.start()
    print(server.port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
