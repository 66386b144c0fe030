"""The simulated provider as a process of its own: started and held here, or running already."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec

from pytest_ultrapar.child import Child
from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.refuse_option import refusal_faults
from pytest_ultrapar.simulator.served import base_path, default_token
from pytest_ultrapar.simulator.server_settings import Ready, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from pytest_ultrapar.pool.model import Pool

__all__ = ["SimulatorProcess", "default_token"]

_MODULE = "pytest_ultrapar.simulator"
_REACH_S = 5.0


class SimulatorProcess:
    """A running server. It ends with `stop`, and with this process however that ends.

    Attributes:
        port: Where it listens on 127.0.0.1.
        pid: Its process id.
    """

    def __init__(self, child: Child, port: int) -> None:
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
            faults: What goes wrong, and when; see `faults.file.load_faults`.
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
        )
        child = Child.start(_MODULE, stdin=msgspec.json.encode(settings) + b"\n")
        try:
            ready = msgspec.json.decode(child.ready_line(), type=Ready)
        except UltraparError as error:
            msg = f"the simulated provider {error}"
            raise ConfigError(msg) from None
        if ready.error is not None:
            child.stop()
            msg = f"the simulated provider cannot start: {ready.error}"
            raise ConfigError(msg)
        return cls(child, ready.port)

    def base_url(self, provider: str) -> str:
        """The provider's base URL, to which clients add `/chat/completions`."""
        return f"http://127.0.0.1:{self.port}{base_path(provider)}"

    def stop(self) -> None:
        """End the server; its log is complete when this returns. Does nothing at a second call."""
        self._child.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def running_simulator(url: str, providers: Sequence[str], option: str) -> dict[str, str]:
    """Base URL by provider at a simulated provider that already runs.

    Args:
        url: Where it does.
        providers: Those of the pool that are simulated.
        option: Which option gave the URL, for messages.

    Raises:
        ConfigError: The URL is no loopback address, or nothing listens there.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        is_loopback = parts.hostname in {"127.0.0.1", "localhost", "::1"}
    except ValueError:  # brackets that do not match, a port out of range
        is_loopback = False
    if not is_loopback or parts.scheme != "http":
        msg = (
            f"{option} must be an http:// URL of the loopback, "
            f"such as http://127.0.0.1:8123 (got {url!r})"
        )
        raise ConfigError(msg)
    root = url.rstrip("/")
    try:
        socket.create_connection((parts.hostname or "", port), _REACH_S).close()
    except OSError as error:
        msg = f"{option}: nothing answers at {root} ({error.strerror or error})"
        raise ConfigError(msg) from error
    return {name: f"{root}/{name}/v1" for name in providers}
