"""`ultrapar simulate` in its own process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextmanager
def simulating(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Simulate until the block ends, which kills it; yield the process and its first output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_ultrapar.cli", "simulate", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=env,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line == "press Ctrl-C to stop the server\n":
            break
    try:
        yield process, "".join(said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
