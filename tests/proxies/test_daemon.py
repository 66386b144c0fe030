"""The proxies' processes: what is missing is named, and nobody stays behind."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.proxies.daemon import MissingError, program, serving


def test_missing_program_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingError, match=r"^no-such-proxy is not installed: apt-get install "):
        program("no-such-proxy")


def test_server_listens_while_it_is_used_and_not_after(tmp_path):
    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]

    with serving(command, tmp_path / "output.log") as port:
        socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_server_that_does_not_start_is_told_with_its_own_words(tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"does not start: .*no port for me"),
        serving(lambda _: ["sh", "-c", "echo no port for me; exit 1"], tmp_path / "output.log"),
    ):
        pass
