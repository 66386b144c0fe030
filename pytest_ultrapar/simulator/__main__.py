"""The simulator's own process: it reads settings, prints a line, and ends when stdin closes."""

from __future__ import annotations

import signal
import sys

import msgspec

from pytest_ultrapar.errors import EXIT_UNUSABLE, UltraparError
from pytest_ultrapar.simulator.server import Server
from pytest_ultrapar.simulator.server_settings import Ready, Settings
from pytest_ultrapar.system.parent import parent_gone, tell_parent


def main() -> int:
    """Serve until the controller has ended; `python -m pytest_ultrapar.simulator` calls this."""
    # The controller handles Ctrl-C, and still needs answers while it shuts down.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
        server = Server(settings)
    except UltraparError as error:
        _say(Ready(error=str(error)))
        return EXIT_UNUSABLE
    _say(Ready(port=server.port))
    server.run(parent_gone)
    return 0


def _say(ready: Ready) -> None:
    tell_parent(msgspec.json.encode(ready) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
