"""Starts the simulated provider in its own process and controls it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

import msgspec

from pytest_ultrapar.errors import UltraparError, refuse
from pytest_ultrapar.simulator.address import base_path
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.server_settings import Ready, Settings, served_part
from pytest_ultrapar.system.child import Child

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool

_MODULE = "pytest_ultrapar.simulator"


class SimulatorProcess:
    """A running server. It ends when `stop` is called, or when this process ends for any reason.

    Attributes:
        pid: The server's process id.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self.pid = child.pid

    @classmethod
    def start(
        cls,
        pool: Pool,
        *,
        log_path: Path,
        tokens: dict[str, str] | None = None,
        faults: FaultScript | None = None,
        port: int = 0,
    ) -> SimulatorProcess:
        """Start a server and return immediately; reading `port` waits until the server listens.

        Args:
            pool: The providers to serve, and the limits to enforce.
            log_path: The file for the server's log, which is emptied if it exists. To read it, see
                `pytest_ultrapar.testing.read_server_log`.
            tokens: Tokens by `PROVIDER/KEY`; all other keys have their `default_token`.
            faults: The script of faults; see `faults.file.load_faults`.
            port: The port; 0 means any free port.
        """
        settings = Settings(
            pool=served_part(pool),
            tokens=tokens or {},
            log_path=str(log_path),
            port=port,
            faults=faults or FaultScript(),
        )
        return cls(Child.start(_MODULE, stdin=msgspec.json.encode(settings) + b"\n"))

    @cached_property
    def port(self) -> int:
        """The port on 127.0.0.1. The first access waits until the server listens.

        Raises:
            ConfigError: The port is taken, the log cannot be written, or the pool cannot be served.
        """
        try:
            ready = msgspec.json.decode(self._child.ready_line(), type=Ready)
        except UltraparError as error:
            refuse(f"the simulated provider {error}")
        if ready.error is not None:
            self._child.stop()
            refuse(f"the simulated provider cannot start: {ready.error}")
        return ready.port

    def base_url(self, provider: str) -> str:
        """Return the provider's base URL; clients append `/chat/completions` and so on."""
        return f"http://127.0.0.1:{self.port}{base_path(provider)}"

    def stop(self) -> None:
        """End the server, and complete its log. A second call does nothing."""
        self._child.stop()

    def __enter__(self) -> Self:
        """Wait until the server listens. Raises the same errors as `port`."""
        self.port  # noqa: B018 - waits
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
