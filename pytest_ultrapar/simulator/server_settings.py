"""What a simulator's process is told by whoever starts it, and what it answers."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.simulator.faults.script import FaultScript


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a server needs; goes through a pipe, since arguments and environments can be read.

    Attributes:
        pool: Who is served, and the limits that callers are judged by.
        tokens: By `PROVIDER/KEY`; keys that are not here have their default token.
        log_path: Where the server's own log goes; None for none.
        port: On 127.0.0.1; 0 takes any free one.
        faults: What goes wrong, and when.
    """

    pool: Pool
    tokens: dict[str, str] = {}
    log_path: str | None = None
    port: int = 0
    faults: FaultScript = FaultScript()

    def __repr__(self) -> str:
        return f"Settings({self.pool.path!r}, port={self.port}, log_path={self.log_path!r})"


def served_part(pool: Pool) -> Pool:
    """All of a pool that a server needs: its providers, and the limits that these hold.

    What a controller makes of the rest is no business of a server's.
    """
    return Pool(pool.path, "", pool.providers, pool.lanes, pool.held or pool.limits)


class Ready(msgspec.Struct, frozen=True):
    """The one line that a server's process prints: its port, or why it has none."""

    port: int = 0
    error: str | None = None
