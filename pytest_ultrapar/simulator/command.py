"""`ultrapar simulate`: run only the simulated provider, in the foreground."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.address import base_path, default_token
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.refuse_option import parse_refusal, refusal_faults
from pytest_ultrapar.simulator.server_settings import Settings, served_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_ultrapar.pool.model import Key, Pool, Provider


async def until_interrupted(announce: Callable[[], None]) -> None:
    """Call `announce` when signal handlers are in place; return at the first SIGINT or SIGTERM."""
    import asyncio  # noqa: PLC0415 - light `--help`

    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, came.set)
    announce()
    await came.wait()


NAME = "simulate"
SUMMARY = "simulate a pool's providers and models on 127.0.0.1"
DESCRIPTION = """\
Simulate all providers and models in a pool until Ctrl-C. The server answers the clients of OpenAI,
Azure, Anthropic, Google and Mistral over HTTP, with and without streaming, and enforces the pool's
limits (429 with Retry-After). The same request always gets the same answer.

    ultrapar simulate --pool pool.toml
    ultrapar simulate --pool pool.toml --refuse key1=401 --log server.log
    ultrapar simulate --pool pool.toml --faults faults.toml

To run a pool with api = "openai" against this server, set
base_url = "http://127.0.0.1:8123/PROVIDER/v1".
The token of a key is the value of its environment variable, or sim-PROVIDER-KEY if that is unset.

A faults file defines which failures happen, where and when (see docs/reference/simulator.md):

    [[fault]]                      # 30 s of 503 on all lanes, 10 s after the first request
    kind = "error"                 # or hang, drop, malformed
    status = 503                   # or error = "insufficient_quota" or another known error
    headers = { retry-after = "2" }
    from_s = 10
    for_s = 30

    [[fault]]                      # one request in a hundred on key1 never gets an answer
    key = "key1"                   # or provider, instance, model
    kind = "hang"
    share = 0.01                   # or after_requests, for_requests

    [[capacity]]                   # after 60 s, all limits that match lab/* are halved
    limit = "lab/*"
    factor = 0.5                   # or workers, qps, rpm, tpm
    from_s = 60
"""
_PORT = 8123


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar simulate`."""
    parser.add_argument(
        "--pool", type=Path, required=True, metavar="FILE", help="file with the pool to simulate"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        help="port on 127.0.0.1, or 0 for any free port (default: %(default)s)",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="log file: a JSON line when a request arrives, and one when it ends (default: no log)",
    )
    parser.add_argument(
        "--refuse",
        type=_refusal,
        action="append",
        default=[],
        metavar="KEY=STATUS",
        help="answer every request that uses KEY with STATUS, such as key1=401 (may be repeated); "
        "instance:NAME=404 does the same for an instance. If a name is not unique, write "
        "PROVIDER/KEY or instance:PROVIDER/NAME",
    )
    parser.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="TOML file that defines failures, as shown above (default: no failures)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ConfigError: The pool cannot be read or served, or the port is taken.
        ResultsError: The log cannot be written.
    """
    from pytest_ultrapar.pool.load_pool import Overrides, load_pool  # noqa: PLC0415 - light `--help`
    from pytest_ultrapar.simulator.faults.file import load_faults  # noqa: PLC0415 - light `--help`
    from pytest_ultrapar.simulator.server import Server  # noqa: PLC0415 - light `--help`

    pool = load_pool(arguments.pool, environ=os.environ, overrides=Overrides())
    script = FaultScript() if arguments.faults is None else load_faults(arguments.faults, pool)
    server = Server(
        Settings(
            pool=served_part(pool),
            tokens=tokens_from(pool, os.environ),
            log_path=None if arguments.log is None else str(arguments.log),
            port=arguments.port,
            faults=script.preceded_by(refusal_faults(pool, dict(arguments.refuse))),
        )
    )

    def announce() -> None:
        lines = banner(pool, server.port, os.environ, arguments.log, script)
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    server.run(lambda: until_interrupted(announce))
    sys.stdout.write("ended\n")
    return 0


def tokens_from(pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of all keys whose environment variable is set, by `PROVIDER/KEY`."""
    return {
        f"{provider.name}/{key.name}": token
        for provider in pool.providers
        for key in provider.keys
        if (token := _token(key, environ))
    }


def banner(
    pool: Pool, port: int, environ: Mapping[str, str], log_path: Path | None, script: FaultScript
) -> Iterator[str]:
    """Yield the lines of the start message, without the values of environment variables."""
    yield f"SIMULATED provider for {pool.path}; no answer comes from a real model"
    for provider in pool.providers:
        yield f"  {provider.name}: base_url http://127.0.0.1:{port}{base_path(provider.name)}"
        for model in provider.models:
            names = ", ".join(instance.api_name for instance in model.instances)
            yield f"    model {model.name} ({model.simulation.persona}): {names}"
        for key in provider.keys:
            yield f"    key {key.name}: token {_origin(provider, key, environ)}"
    if script.path:
        yield f"faults: {script.path}"
    if log_path is not None:
        yield f"log: {log_path}"
    yield "press Ctrl-C to stop the server"


def _origin(provider: Provider, key: Key, environ: Mapping[str, str]) -> str:
    if _token(key, environ):
        return f"from {key.env}"
    token = default_token(provider.name, key.name)
    return token if key.env is None else f"{token} ({key.env} is not set)"


def _token(key: Key, environ: Mapping[str, str]) -> str:
    return "" if key.env is None else environ.get(key.env, "").strip()


def _refusal(text: str) -> tuple[str, int]:
    try:
        return parse_refusal(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
