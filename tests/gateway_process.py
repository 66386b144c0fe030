"""`ultrapar gateway` in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Gateway:
    """A gateway that serves.

    Attributes:
        url: Its address.
        process: Its process.
        said: Its output before it served.
    """

    url: str
    process: subprocess.Popen[str]
    said: str

    def end(self) -> str:
        """Interrupt it, check that it ends in order, and return its output since it served."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=180)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def gateway(pool: Path, *options: str, **variables: str) -> Iterator[Gateway]:
    """Serve a pool from its folder until the gateway ends or the block does, which kills it."""
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "gateway", "--pool", pool.name]
    command += ["--port", "0", "--token-env", "GATEWAY_TOKEN", *options]
    with subprocess.Popen(
        command,
        cwd=pool.parent,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            said = ""
            for line in process.stdout or ():
                said += line
                if line.startswith("OPENAI_BASE_URL="):
                    yield Gateway(line.strip().partition("=")[2], process, said)
                    break
            else:
                pytest.fail(said)
        finally:
            process.kill()
