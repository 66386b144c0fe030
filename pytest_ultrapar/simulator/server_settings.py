"""The messages between the simulator's process and its parent: the settings and the port."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.simulator.faults.script import FaultScript


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a server.

    They are sent through a pipe, because other processes can read arguments and environment
    variables.

    Attributes:
        pool: The providers to serve, and the limits to enforce.
        tokens: Tokens by `PROVIDER/KEY`; all other keys have their default token.
        log_path: The file for the server's log; None means no log.
        port: The port on 127.0.0.1; 0 means any free port.
        faults: The script of faults.
    """

    pool: Pool
    tokens: dict[str, str] = {}
    log_path: str | None = None
    port: int = 0
    faults: FaultScript = FaultScript()

    def __repr__(self) -> str:
        return f"Settings({self.pool.path!r}, port={self.port}, log_path={self.log_path!r})"


def served_part(pool: Pool) -> Pool:
    """Return the part of a pool that a server needs: its providers and the limits to enforce."""
    return Pool(pool.path, "", pool.providers, pool.lanes, pool.held or pool.limits)


class Ready(msgspec.Struct, frozen=True):
    """The only line that the server's process prints: its port, or an error."""

    port: int = 0
    error: str | None = None
