"""Run a module of this package as a child process that ends with its parent.

`Child` starts the same interpreter and writes settings to its standard input. The child prints one
line when it is ready. If it fails, the end of its standard error becomes the message. Unlike
arguments and environments, other processes cannot read the standard input.

`system/parent.py` contains the child's half.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest_ultrapar
from pytest_ultrapar.errors import ResultsError, UltraparError
from pytest_ultrapar.system.parent import PARENT_PID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


READY_S = 60.0
"""A process that imports msgspec and uvloop starts in 0.2 s; a machine that swaps takes longer."""
STOP_S = 5.0
_SHOWN_BYTES = 4096


class Child:
    """A child process. It ends with `stop`, or when this process ends for any reason.

    Attributes:
        module: The module that it runs.
        pid: The process id.
    """

    def __init__(self, module: str, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self.module = module
        self._process = process
        self._stderr = stderr
        self._said = ""
        self.pid = process.pid

    @classmethod
    def start(
        cls,
        module: str,
        *arguments: str,
        stdin: bytes = b"",
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        inherited: Sequence[int] = (),
        own_session: bool = True,
    ) -> Child:
        """Start `python -m MODULE ARGUMENTS` and return immediately.

        Args:
            module: Full name of a module of this package.
            arguments: Its command line; never put secrets here.
            stdin: The first bytes on its standard input; the pipe stays open.
            environ: Its environment; None: the same as this process.
            cwd: Its working directory; None: the same as this process.
            inherited: File descriptors that it keeps open.
            own_session: Whether to start a new session or only a process group. Both keep Ctrl-C
                away. Linux divides the CPU between sessions first (`sched_autogroup_enabled`), so a
                child with a session gets as much CPU as this whole session.
        """
        stderr = _without_a_name()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
                # -P: never import a msgspec.py from the user's directory.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(os.environ if environ is None else environ),
                cwd=cwd,
                # Ctrl-C goes to the whole group, and the parent decides what it means.
                start_new_session=own_session,
                process_group=None if own_session else 0,
                pass_fds=inherited,
            )
        except BaseException:
            stderr.close()
            raise
        child = cls(module, process, stderr)
        if stdin:
            child.tell(stdin)
        return child

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def tell(self, text: bytes) -> None:
        """Write to its standard input; do nothing if the process has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def ready_line(self) -> bytes:
        """The first line that it prints.

        Raises:
            UltraparError: The child ended first, or took longer than `READY_S`. The message
                contains its standard error, and the child is stopped.
        """
        assert self._process.stdout is not None
        try:
            readable, _, _ = select.select([self._process.stdout], [], [], READY_S)
            line = self._process.stdout.readline() if readable else b""
        except BaseException:
            self.stop()
            raise
        if line:
            return line
        self.stop()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        # The output ended without a line: the child was about to end, or had ended.
        what = (
            f"ended before it was ready: {how}" if readable else f"was not ready in {READY_S:g} s"
        )
        raise UltraparError(f"{what}; it printed {self.said() or 'nothing'}")

    def lines(self) -> Iterator[bytes]:
        """The lines that it prints, until its end."""
        assert self._process.stdout is not None
        return (line.rstrip(b"\n") for line in self._process.stdout)

    def printed(self, stdin: bytes = b"") -> bytes:
        """Its whole output after the input ends; `stdin` is the last input."""
        return self._process.communicate(stdin)[0]

    def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return self._process.wait()

    def said(self) -> str:
        """The last 4 KiB of its standard error."""
        if not self._stderr.closed:
            # Seeking would also move the position at which the child writes.
            size = os.fstat(self._stderr.fileno()).st_size
            last = os.pread(self._stderr.fileno(), _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))
            self._said = last.decode("utf-8", "replace").strip()
        return self._said

    def stop(self) -> None:
        """Close its input so that it ends, and kill it after `STOP_S`. Idempotent."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.said()
        self._stderr.close()

    def kill(self) -> None:
        """Kill it, and do not wait."""
        self._process.kill()


def run_child(module: str, *arguments: str) -> bytes:
    """Run `python -m MODULE ARGUMENTS` and return its output: pyarrow takes 50 MB in a process.

    Args:
        module: Full name of a module of this package.
        arguments: Its command line.

    Raises:
        ResultsError: The exit code was not 0; the message is its standard error.
    """
    return output_of(Child.start(module, *arguments))


def output_of(child: Child, stdin: bytes = b"") -> bytes:
    """Send a child the last of its input, wait until it ends, and return its output.

    Args:
        child: A child that reads its standard input to the end.
        stdin: The last bytes of its input.

    Raises:
        ResultsError: The exit code was not 0; the message is its standard error.
    """
    try:
        printed = child.printed(stdin)
    except BaseException:
        child.kill()
        raise
    finally:
        child.stop()
    if code := child.wait():
        raise ResultsError(child.said() or f"python -m {child.module} ended with exit code {code}")
    return printed


def _without_a_name() -> IO[bytes]:
    """A file for the child's standard error: a pipe without a reader would block it when full."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a machine without any directory for temporary files
        return Path(os.devnull).open("r+b")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    # The package may have been found through sys.path alone (pytest's `pythonpath`).
    root = str(Path(pytest_ultrapar.__file__).parents[1])
    known = given.get("PYTHONPATH", "")
    path = f"{known}{os.pathsep}{root}" if known else root
    return {**given, "PYTHONPATH": path, PARENT_PID: str(os.getpid())}
