"""The scenes of the other tools: a queue of minutes, a storm of 429, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pyarrow.parquet as pq

from pytest_ultrapar.testing import read_server_log
from tests.harnesses import (
    GATEWAY,
    KEY,
    STORM,
    asked,
    command,
    figures,
    served,
    variables,
    write_pool,
)

if TYPE_CHECKING:
    from pathlib import Path

PER_MINUTE = 60
CROWD = "crowd"
CROWDS_MODEL = {"deepeval": "gpt-4o"}
TOKEN = "ultrapar-of-a-crowd"
# Run the command in a second terminal, which passes on what this one sends.
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
WAITS = 'while [ ! -e crowded ]; do sleep 0.2; done; exec "$@"'
CTRL_C = b"\x03"
ENDS_WITHIN_S = 120


class Outcome(NamedTuple):
    """The result of a tool.

    Attributes:
        code: The exit code of the gateway.
        found: The figures of the tool.
        said: The output of the gateway, or of the terminal.
        rows: The rows of the tool's requests in `results`.
        n_refused: The number of answers 429 of the server.
        most_in_flight: The most requests in flight at the server.
        n_presses: The number of Ctrl-C.
        took_s: Seconds from the first Ctrl-C, or from the tool's place in the queue, to the end.
    """

    code: int
    found: object
    said: str
    rows: list[dict[str, object]]
    n_refused: int
    most_in_flight: int
    took_s: float = 0.0
    n_presses: int = 0

    @property
    def outcomes(self) -> Counter[object]:
        """The number of rows with each outcome."""
        return Counter(row["outcome"] for row in self.rows)


def direct(name: str, environments: Path, folder: Path) -> tuple[int, object]:
    """Run a tool without the gateway; return its exit code and figures."""
    folder.mkdir()
    with served(folder) as url:
        words = command(name, environments, folder)
        done = asked(words, folder, OPENAI_BASE_URL=url, OPENAI_API_KEY=KEY)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr)
    return done.returncode, figures(done.stdout)


def _outcome(folder: Path, code: int, found: object, said: str, took_s: float = 0.0) -> Outcome:
    rows = pq.read_table(folder / ".ultrapar" / "latest" / "results.parquet").to_pylist()
    own = [row for row in rows if row["param.label"] != CROWD]
    log = read_server_log(folder / "server.jsonl")
    most = log.max_in_flight(key="key0")
    return Outcome(code, found, said, own, log.count(429), most, took_s)


def storm(name: str, environments: Path, folder: Path) -> Outcome:
    """Run a tool through five seconds of 429, on three seats."""
    folder.mkdir()
    folder.joinpath("storm.toml").write_text(STORM, encoding="utf-8")
    with served(folder, "--faults", "storm.toml", "--log", "server.jsonl") as url:
        write_pool(folder, url, "workers = 3")
        done = asked([*GATEWAY, "--", *command(name, environments, folder)], folder)
    return _outcome(folder, done.returncode, figures(done.stdout), done.stderr)


def queue(name: str, environments: Path, folder: Path, minutes: int) -> Outcome:
    """Run a tool behind many requests in the queue of a rate limit."""
    folder.mkdir()
    with served(folder, "--log", "server.jsonl") as url:
        write_pool(folder, url, f"workers = {PER_MINUTE}, rpm = {PER_MINUTE}")
        words = ["sh", "-c", WAITS, "sh", *command(name, environments, folder)]
        with (
            folder.joinpath("out").open("w+") as out,
            subprocess.Popen(
                [*GATEWAY, "--token-env", "CROWDS_TOKEN", "--", *words],
                cwd=folder,
                env=variables(folder, CROWDS_TOKEN=TOKEN),
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            assert process.stderr is not None
            said = process.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", said)
            if address is None:
                raise RuntimeError(said)
            model = CROWDS_MODEL.get(name, "m")
            crowd = _crowd(address[0], model, minutes, folder / "crowded")
            with ThreadPoolExecutor(1) as reader:
                rest = reader.submit(process.stderr.read)
                asyncio.run(crowd)
                said += rest.result()
            process.wait()
            took_s = time.time() - folder.joinpath("crowded").stat().st_mtime
            out.seek(0)
            text = out.read()
    if not text.strip():
        raise RuntimeError(said)
    return _outcome(folder, process.returncode, figures(text), said, took_s)


async def _crowd(address: str, model: str, minutes: int, crowded: Path) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "x-ultrapar-label": CROWD}
    limits = httpx.Limits(max_connections=None)

    async def ask(client: httpx.AsyncClient, n: int) -> int:
        said = [{"role": "user", "content": f"crowd {n}"}]
        answer = await client.post("/chat/completions", json={"model": model, "messages": said})
        return answer.status_code

    async with httpx.AsyncClient(
        base_url=f"{address}/v1", headers=headers, timeout=None, limits=limits, trust_env=False
    ) as client:
        tasks = [asyncio.create_task(ask(client, n)) for n in range(minutes * PER_MINUTE)]
        # The last of them is in the queue once others have their answers, and a while later.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(3)
        await asyncio.to_thread(crowded.touch)
        await asyncio.gather(*tasks, return_exceptions=True)


def ctrl_c(name: str, environments: Path, folder: Path) -> Outcome:
    """Press Ctrl-C on a tool's terminal while its first requests are being answered."""
    folder.mkdir()
    with served(folder, "--log", "server.jsonl", latency_s=2.0) as url:
        write_pool(folder, url, "workers = 3")
        words = [*GATEWAY, "--", *command(name, environments, folder)]
        with (
            folder.joinpath("out").open("w+b") as out,
            subprocess.Popen(
                [sys.executable, "-c", TERMINAL, *words],
                cwd=folder,
                env=variables(folder),
                stdin=subprocess.PIPE,
                stdout=out,
                start_new_session=True,
            ) as process,
        ):
            assert process.stdin is not None
            while _answered(folder) < 4 and process.poll() is None:
                time.sleep(0.05)
            pressed_s, n_presses = time.monotonic(), 0
            while process.poll() is None:
                with suppress(BrokenPipeError):
                    os.write(process.stdin.fileno(), CTRL_C)
                n_presses += 1
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDS_WITHIN_S)
            took_s = time.monotonic() - pressed_s
            out.seek(0)
            said = out.read().decode(errors="replace").replace("\r\n", "\n")
    return _outcome(folder, process.returncode, None, said, took_s)._replace(n_presses=n_presses)


def _answered(folder: Path) -> int:
    found = folder.glob(".ultrapar/latest/journal/*")
    return sum(one.read_bytes().count(b'"type":"grade"') for one in found)
