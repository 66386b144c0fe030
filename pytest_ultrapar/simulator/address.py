"""The addresses and tokens of the simulated provider, for its clients.

Every run with a simulated pool imports this module, but not the server's own modules.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from pytest_ultrapar.errors import ConfigError, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

_REACH_S = 5.0


def default_token(provider: str, key: str) -> str:
    """Return the default token of a simulated key, which is valid only for the simulator."""
    return f"sim-{provider}-{key}"


def base_path(provider: str) -> str:
    """Return the path of a provider's base URL; clients append `/chat/completions` and so on."""
    return f"/{quote(provider, safe='')}/v1"


def running_simulator(url: str, providers: Sequence[str], option: str) -> dict[str, str]:
    """Return the base URL of each provider on a simulator that is already running.

    Args:
        url: The URL of the running server.
        providers: The names of the pool's simulated providers.
        option: The option that set the URL, for messages.

    Raises:
        ConfigError: The URL is not a loopback address, or no server is listening there.
    """
    from pytest_ultrapar.pool.network import is_local  # noqa: PLC0415 - not for `--help`

    try:
        parts = urlsplit(url)
        port = parts.port or 80
        is_ours = parts.scheme == "http" and is_local(parts.hostname or "")
    except ValueError:  # brackets that do not match, a port out of range
        is_ours = False
    if not is_ours:
        refuse(
            f"{option} must be an http:// URL on this machine, "
            f"such as http://127.0.0.1:8123 (got {url!r})"
        )
    root = url.rstrip("/")
    try:
        socket.create_connection((parts.hostname or "", port), _REACH_S).close()
    except OSError as error:
        raise ConfigError(
            f"{option}: no server answers at {root} ({error.strerror or error}); start a server "
            "with ultrapar simulate"
        ) from error
    return {name: f"{root}/{name}/v1" for name in providers}
