"""What a simulator's process is told by whoever starts it, and what it answers."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.pool.model import Pool  # noqa: TC001 - msgspec reads it at run time


class Settings(msgspec.Struct, frozen=True):
    """All that a server needs; goes through a pipe, since arguments and environments can be read.

    Attributes:
        tokens: (provider, key, token); keys that are not here have their default token.
        log_path: Where the server's own log goes; None for none.
        port: On 127.0.0.1; 0 takes any free one.
        controller_pid: Who started the server; it ends when its parent is another.
        refusals: Status by `KEY`, `PROVIDER/KEY`, `instance:NAME` or `instance:PROVIDER/NAME`.
    """

    pool: Pool
    tokens: tuple[tuple[str, str, str], ...] = ()
    log_path: str | None = None
    port: int = 0
    controller_pid: int | None = None
    refusals: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Settings({self.pool.path!r}, port={self.port}, log_path={self.log_path!r})"

    @property
    def token_of(self) -> dict[tuple[str, str], str]:
        """The chosen tokens by (provider, key)."""
        return {(provider, key): token for provider, key, token in self.tokens}


class Ready(msgspec.Struct, frozen=True):
    """The one line that a server's process prints: its port, or why it has none."""

    port: int = 0
    error: str | None = None
