"""A module of this package as a process of its own, which ends with whoever started it.

`Child` is our interpreter, settings on the standard input, a line on the
standard output when it is ready, the last of its standard error when it fails. Nobody else can read
what is written to that input, unlike arguments and environments.

The child's half is `system/parent.py`.
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
"""A process that imports msgspec and uvloop is up in 0.2 s; this is for a machine that swaps."""
STOP_S = 5.0
_SHOWN_BYTES = 4096


class Child:
    """A process while it is of use. It ends with `stop`, and with this process however that ends.

    Attributes:
        module: What it runs.
        pid: The process.
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
        """Start `python -m MODULE ARGUMENTS`; returns at once.

        Args:
            module: Full name of a module of this package.
            arguments: Its command line; no place for secrets.
            stdin: What it is told at once; the pipe stays open.
            environ: Its environment; None takes ours.
            cwd: Its working directory; None takes ours.
            inherited: File descriptors that it keeps open.
            own_session: Whether it is a session of its own or only a process group, which also
                keeps our Ctrl-C away. Linux divides the CPU between sessions first
                (`sched_autogroup_enabled`), so one of its own gets as much as all of ours together.
        """
        stderr = _without_a_name()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
                # -P: a msgspec.py in the user's directory must not become ours.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(os.environ if environ is None else environ),
                cwd=cwd,
                # Ctrl-C goes to our whole group, and what it means we decide.
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
        """Write to its standard input; one that has ended hears nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def ready_line(self) -> bytes:
        """The first line that it prints.

        Raises:
            UltraparError: It ended instead or took longer than `READY_S`, with what it said; it is
                stopped.
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
        # The end of its output without a word: it was about to end, or had.
        what = (
            f"ended before it was ready: {how}" if readable else f"was not ready in {READY_S:g} s"
        )
        raise UltraparError(f"{what}; it said {self.said() or 'nothing'}")

    def lines(self) -> Iterator[bytes]:
        """The lines that it prints, until its end."""
        assert self._process.stdout is not None
        return (line.rstrip(b"\n") for line in self._process.stdout)

    def printed(self, stdin: bytes = b"") -> bytes:
        """All that it prints after the end of its input, which ends with `stdin`."""
        return self._process.communicate(stdin)[0]

    def wait(self) -> int:
        """Its exit code, when it has ended by itself."""
        return self._process.wait()

    def said(self) -> str:
        """The last 4 KiB of its standard error."""
        if not self._stderr.closed:
            # Seeking would move the place at which the child writes, too.
            size = os.fstat(self._stderr.fileno()).st_size
            last = os.pread(self._stderr.fileno(), _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))
            self._said = last.decode("utf-8", "replace").strip()
        return self._said

    def stop(self) -> None:
        """Let it end, by the end of its input, or else make it; any number of times."""
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
        """End it whatever it does, and wait for nothing."""
        self._process.kill()


def run_child(module: str, *arguments: str) -> bytes:
    """What `python -m MODULE ARGUMENTS` prints, run to its end: pyarrow weighs 50 MB in a process.

    Args:
        module: Full name of a module of this package.
        arguments: Its command line.

    Raises:
        ResultsError: It ended with another exit code than 0; the message is what it said.
    """
    return output_of(Child.start(module, *arguments))


def output_of(child: Child, stdin: bytes = b"") -> bytes:
    """What a child prints once it knows all that it is told; it ends with that.

    Args:
        child: One that reads its standard input to the end.
        stdin: That.

    Raises:
        ResultsError: It ended with another exit code than 0; the message is what it said.
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
    """Where a child's errors go: a pipe that nobody reads yet would stop it in the end."""
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
