"""A server in the foreground that ends with the process that started it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_START_S, _STOP_S = 60.0, 10.0
_TRIES = 5


class MissingError(Exception):
    """A required program is not installed on this machine."""


def program(name: str) -> str:
    """The path of a program; Debian installs servers in /usr/sbin, which PATH may lack.

    Raises:
        MissingError: It is not installed.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        msg = f"{name} is not installed: apt-get install nginx haproxy"
        raise MissingError(msg)
    return path


@contextlib.contextmanager
def serving(command: Callable[[int], Sequence[str]], output: Path) -> Iterator[int]:
    """Start a server on a free port of 127.0.0.1; yield the port once it accepts connections.

    Args:
        command: The command line for a port. It must stay in the foreground and not fork.
        output: The file for its standard output and error.

    Raises:
        MissingError: The program is not installed.
        RuntimeError: It does not start.
    """
    for _ in range(_TRIES):
        port = _free_port()
        with output.open("ab") as file:
            child = subprocess.Popen(
                # It ends with this process in any case.
                [program("setpriv"), "--pdeathsig", "TERM", *command(port)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        try:
            if _accepts(child, port):
                yield port
                return
        finally:
            _end(child)
    msg = f"{command(0)[0]} does not start: {output.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(msg)


def _free_port() -> int:
    # Another process may take the port before the server does, so try several times.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _accepts(child: subprocess.Popen[bytes], port: int) -> bool:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return child.poll() is None
        time.sleep(0.02)
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
