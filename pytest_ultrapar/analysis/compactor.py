"""Starts and ends the process that compacts a run; used by the process that coordinates it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.store.child import failure_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.analysis.run_summary import RunSummary


MODULE = "pytest_ultrapar.analysis.compact"
WAIT = "--wait"
"""Load everything, then wait for a line on the standard input; its end without one means: never."""
_GO = b"go\n"


def unheard(_done: int, _total: int) -> None:
    """Where nobody wants to know how far a compaction is."""


class Compactor:
    """The process that will compact a run, started before there is anything to compact.

    Loading pyarrow and pytest-benchmark and asking for the machine's description take 0.3 s of CPU
    and as long again of waiting for other programs; a run that mostly waits has them for nothing,
    where they were 0.4 s at the end of every command.

    It ends with `compact` or `stop`, and by itself when the process that started it is gone.
    """

    def __init__(self, run_dir: Path, child: subprocess.Popen[bytes], cwd: Path | None) -> None:
        self._run_dir = run_dir
        self._child = child
        self._cwd = cwd

    @classmethod
    def start(cls, run_dir: Path, *, cwd: Path | None = None) -> Compactor:
        """Start the process; returns at once.

        Args:
            run_dir: The run directory.
            cwd: Where the suite stands, since the benchmark JSON names the commit found there.
        """
        return cls(run_dir, _spawn(run_dir, cwd), cwd)

    def compact(self, written: Callable[[int, int], None] = unheard) -> RunSummary:
        """Have the run compacted and wait for it.

        Args:
            written: Called now and then with how many cases are in the tables, and of how many.

        Raises:
            ResultsError: The process failed; the journal is as it was, and the message says how to
                try again.
        """
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415

        if self._child.poll() is not None:
            # Whatever ended it while it waited has nothing to do with this run's tables.
            self._child = _spawn(self._run_dir, self._cwd)
        try:
            said = self._say_go_and_listen(written)
            _, stderr = self._child.communicate()
        except BaseException:
            self._child.kill()
            self._child.communicate()
            raise
        if self._child.returncode != 0:
            why = failure_text(MODULE, stderr, self._child.returncode)
            msg = (
                f"no tables were written: {why}\n"
                f"The journal is whole; try again with: python -m {MODULE} {self._run_dir}"
            )
            raise ResultsError(msg)
        return msgspec.json.decode(said, type=RunSummary)

    def _say_go_and_listen(self, written: Callable[[int, int], None]) -> bytes:
        """Returns the last line: the summary, if all went well."""
        child, line = self._child, b""
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError):
            child.stdin.write(_GO)
            child.stdin.flush()
        for line in child.stdout:
            if line.startswith(b"["):
                written(*msgspec.json.decode(line, type=tuple[int, int]))
        return line

    def kill(self) -> None:
        """End the process whatever it does, and wait for nothing."""
        self._child.kill()

    def stop(self) -> None:
        """End the process if it still waits. Idempotent."""
        if self._child.returncode is None:
            self.kill()
            self._child.communicate()


def _spawn(run_dir: Path, cwd: Path | None) -> subprocess.Popen[bytes]:
    package_root = str(Path(__file__).parents[2])
    python_path = os.environ.get("PYTHONPATH")
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
        [sys.executable, "-m", MODULE, WAIT, str(run_dir.absolute())],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (package_root, python_path))),
            # Without it, `-m` would put the suite's own directory first among the modules.
            "PYTHONSAFEPATH": "1",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C goes to our whole group, and what has run by then is compacted afterwards.
        start_new_session=True,
    )
