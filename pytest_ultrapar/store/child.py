"""A module of this package as a process of its own: pyarrow weighs 50 MB in whoever imports it."""

from __future__ import annotations

import subprocess
import sys

from pytest_ultrapar.errors import ResultsError

_STDERR_SHOWN = 2_000


def run_apart(module: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """What `python -m MODULE ARGUMENTS` writes to its standard output.

    Args:
        module: Full name of a module of this package.
        arguments: Its command line.
        stdin: What it reads from its standard input.

    Raises:
        ResultsError: It ended with another exit code than 0; the message is what it said.
    """
    done = subprocess.run(  # noqa: S603 - our own interpreter and module, no shell
        [sys.executable, "-P", "-m", module, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise ResultsError(failure_text(module, done.stderr, done.returncode))
    return done.stdout


def failure_text(module: str, stderr: bytes, code: int) -> str:
    """Why a process failed: the last that it said, or its exit code where it said nothing."""
    said = stderr.decode("utf-8", "replace").strip()[-_STDERR_SHOWN:]
    return said or f"python -m {module} ended with exit code {code}"
