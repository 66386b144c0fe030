"""Which cores the client and the server run on."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ultrapar.errors import ConfigError

CLIENT_CORE = 0
SERVER_CORE = 1


def check_cores() -> None:
    """Make sure that pinning is possible here.

    Raises:
        ConfigError: It is not, with the reason.
    """
    if not hasattr(os, "sched_setaffinity"):
        msg = "--pinned needs an operating system that binds processes to cores, such as Linux"
        raise ConfigError(msg)
    if not {CLIENT_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        allowed = sorted(os.sched_getaffinity(0))
        msg = f"--pinned needs cores {CLIENT_CORE} and {SERVER_CORE} (allowed here: {allowed})"
        raise ConfigError(msg)


def pin_clients() -> None:
    """Bind this process, and so all that it starts from now on, to the clients' core."""
    os.sched_setaffinity(0, {CLIENT_CORE})


def pin_server(pid: int) -> None:
    """Bind a running server with all its threads to the server's core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {SERVER_CORE})
