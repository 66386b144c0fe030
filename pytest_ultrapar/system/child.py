"""Run a module of this package as a child process that ends with its parent.

`Child` starts the same interpreter and writes settings to its standard input. The child prints one
line when it is ready. If it fails, the end of its standard error becomes the error message.
Settings are not passed as arguments or in the environment, because other processes can read both.

`system/parent.py` contains the code that runs in the child.
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
"""How long to wait for a child's first line. A process that imports msgspec and uvloop starts in
0.2 s, but takes longer if the machine swaps."""
STOP_S = 5.0
_SHOWN_BYTES = 4096


class Child:
    """A child process. It ends when `stop` is called, or when this process ends for any reason.

    Attributes:
        module: The module that the process runs.
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
            module: The full name of a module in this package.
            arguments: The command-line arguments. Never put secrets here.
            stdin: The first bytes on the child's standard input. The pipe stays open.
            environ: The environment; None means the environment of this process.
            cwd: The working directory; None means the directory of this process.
            inherited: File descriptors that stay open in the child.
            own_session: Whether to start a new session instead of only a process group. In both
                cases the child gets no Ctrl-C. Linux first divides the CPU between sessions
                (`sched_autogroup_enabled`), so a child with its own session gets as much CPU as
                this whole session.
        """
        stderr = _without_a_name()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
                # -P: do not import a msgspec.py from the user's directory.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(os.environ if environ is None else environ),
                cwd=cwd,
                # The terminal sends Ctrl-C to a whole group, but only the parent must handle it.
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
        """Whether the process is running."""
        return self._process.poll() is None

    def tell(self, text: bytes) -> None:
        """Write to the child's standard input; do nothing if the child has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def ready_line(self) -> bytes:
        """Wait for the first line that the child prints, and return it.

        Raises:
            UltraparError: The child ended before it printed a line, or took longer than `READY_S`.
                The message contains the child's standard error, and the child is stopped.
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
        # If the output ended without a line, the child was about to end, or had already ended.
        what = (
            f"ended before it was ready: {how}" if readable else f"was not ready in {READY_S:g} s"
        )
        raise UltraparError(f"{what}; it printed {self.said() or 'nothing'}")

    def lines(self) -> Iterator[bytes]:
        """Iterate over the lines that the child prints, until it ends."""
        assert self._process.stdout is not None
        return (line.rstrip(b"\n") for line in self._process.stdout)

    def printed(self, stdin: bytes = b"") -> bytes:
        """Send `stdin` as the last input, close the input, and return the child's whole output."""
        return self._process.communicate(stdin)[0]

    def wait(self) -> int:
        """Wait until the child ends by itself, and return its exit code."""
        return self._process.wait()

    def said(self) -> str:
        """The last 4 KiB of the child's standard error."""
        if not self._stderr.closed:
            # Do not seek: that would also move the position at which the child writes.
            size = os.fstat(self._stderr.fileno()).st_size
            last = os.pread(self._stderr.fileno(), _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))
            self._said = last.decode("utf-8", "replace").strip()
        return self._said

    def stop(self) -> None:
        """Close the child's input so that the child ends; kill it after `STOP_S`. Idempotent."""
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
        """Kill the child without waiting for its end."""
        self._process.kill()


def run_child(module: str, *arguments: str) -> bytes:
    """Run `python -m MODULE ARGUMENTS` and return its output.

    Use it for modules that import pyarrow, which adds 50 MB to the memory of a process.

    Args:
        module: The full name of a module in this package.
        arguments: The command-line arguments.

    Raises:
        ResultsError: The exit code was not 0. The message is the child's standard error.
    """
    return output_of(Child.start(module, *arguments))


def output_of(child: Child, stdin: bytes = b"") -> bytes:
    """Send a child the rest of its input, wait until it ends, and return its output.

    Args:
        child: A child that reads its standard input to the end.
        stdin: The last bytes of the input.

    Raises:
        ResultsError: The exit code was not 0. The message is the child's standard error.
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
    """A file for the child's standard error: a full pipe without a reader would block the child."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # a machine without any directory for temporary files
        return Path(os.devnull).open("r+b")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    # The package may have been found only through sys.path (pytest's `pythonpath`).
    root = str(Path(pytest_ultrapar.__file__).parents[1])
    known = given.get("PYTHONPATH", "")
    path = f"{known}{os.pathsep}{root}" if known else root
    return {**given, "PYTHONPATH": path, PARENT_PID: str(os.getpid())}
