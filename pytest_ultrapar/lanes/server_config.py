"""What the controller tells the broker's process as its first line."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.lanes.health import PATIENCE_S
from pytest_ultrapar.lanes.protocol import KnownLane
from pytest_ultrapar.pool.model import Pool

SERVER_MODULE = "pytest_ultrapar.lanes.broker_server"
READY_LINE = b"ready\n"


class ServerConfig(msgspec.Struct, frozen=True):
    """One line of JSON on the standard input, which then stays open while the controller lives.

    Attributes:
        pool: The lanes and limits; holds no secret.
        socket_path: Where to listen, in a directory that nobody else can enter and that the server
            removes.
        token: What clients must know.
        seed: For the jitter of pauses.
        patience_s: How long an episode may last, seconds.
        history_path: Where the changes of limits that are estimated go; None for nowhere.
        known: As for `LaneBroker`.
    """

    pool: Pool
    socket_path: str
    token: str
    seed: int = 0
    patience_s: float = PATIENCE_S
    history_path: str | None = None
    known: tuple[KnownLane, ...] = ()

    def __repr__(self) -> str:
        return f"ServerConfig(socket_path={self.socket_path!r})"
