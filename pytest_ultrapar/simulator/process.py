"""The simulated provider as a process of its own, held by whoever started it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Self

import msgspec

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.refusals import refusal_faults
from pytest_ultrapar.simulator.served import base_path, default_token
from pytest_ultrapar.simulator.settings import Ready, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from pytest_ultrapar.pool.model import Pool

__all__ = ["SimulatorProcess", "default_token"]

_START_S = 60.0
_STOP_S = 5.0
_SHOWN_CHARACTERS = 2000


class SimulatorProcess:
    """A running server. It ends with `stop`, and with this process however that ends.

    Attributes:
        port: Where it listens on 127.0.0.1.
        pid: Its process id.
    """

    def __init__(self, child: subprocess.Popen[bytes], port: int) -> None:
        self._child = child
        self.port = port
        self.pid = child.pid

    @classmethod
    def start(
        cls,
        pool: Pool,
        *,
        log_path: Path,
        tokens: Mapping[tuple[str, str], str] | None = None,
        refusals: Mapping[str, int] | None = None,
        faults: FaultScript | None = None,
        port: int = 0,
    ) -> SimulatorProcess:
        """Start a server for all providers of the pool, whatever their API, and wait for it.

        Args:
            pool: Who is served, and the limits that callers are judged by.
            log_path: Where the server's own log goes; emptied if it exists. See
                `pytest_ultrapar.testing.read_server_log`.
            tokens: Tokens by (provider, key); a key that is not there has its `default_token`.
            refusals: Status by `KEY`, `PROVIDER/KEY`, `instance:NAME` or `instance:PROVIDER/NAME`,
                for lanes that always answer with an error.
            faults: What goes wrong, and when; see `faults.load.load_faults`.
            port: 0 takes any free one.

        Raises:
            ConfigError: The port is taken, the log cannot be written, a refusal names nothing in
                the pool, or the pool cannot be served.
        """
        settings = Settings.of(
            pool,
            tokens=tokens or {},
            log_path=log_path,
            port=port,
            faults=(faults or FaultScript()).preceded_by(refusal_faults(pool, refusals or {})),
            parent_pid=os.getpid(),
        )
        with tempfile.TemporaryFile() as stderr:
            child = _spawn(stderr)
            try:
                ready = _hand_over(child, msgspec.json.encode(settings) + b"\n")
            except BaseException:
                _end(child)
                raise
            if ready is None or ready.error is not None:
                _end(child)
                raise ConfigError(_why(ready, stderr))
        return cls(child, ready.port)

    def base_url(self, provider: str) -> str:
        """The provider's base URL, to which clients add `/chat/completions`."""
        return f"http://127.0.0.1:{self.port}{base_path(provider)}"

    def stop(self) -> None:
        """End the server; its log is complete when this returns. Does nothing at a second call."""
        _end(self._child)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _spawn(stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    # It imports what we would import; `-P` keeps the working directory out unless our path has it.
    path = [os.fspath(entry) or os.getcwd() for entry in sys.path]  # noqa: PTH109 - text is wanted
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pytest_ultrapar.simulator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        # Ctrl-C goes to our whole group, and the server must outlive our last request.
        start_new_session=True,
    )


def _hand_over(child: subprocess.Popen[bytes], settings: bytes) -> Ready | None:
    """The server's one line, or None when it died or said nothing in time."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(settings)
        child.stdin.flush()
    readable, _, _ = select.select([child.stdout], [], [], _START_S)
    line = child.stdout.readline() if readable else b""
    return msgspec.json.decode(line, type=Ready) if line else None


def _end(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _why(ready: Ready | None, stderr: IO[bytes]) -> str:
    if ready is not None:
        return f"the simulated provider cannot start: {ready.error}"
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]
    return f"the simulated provider ended before it was ready: {said or 'it said nothing'}"
