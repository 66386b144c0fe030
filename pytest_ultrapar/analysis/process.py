"""Starts and ends the process that compacts a run; used by the process that coordinates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.child import Child
from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary


_MODULE = "pytest_ultrapar.analysis.beside"
_BY_HAND = "python -m pytest_ultrapar.analysis.compact"
FOLLOW = b"follow"
"""The run is planned, and its journal begins."""
_GO = b"go\n"


def unheard(_done: int, _total: int) -> None:
    """Where nobody wants to know how far a compaction is."""


class CompactionProcess:
    """The process that will compact a run, started before there is anything to compact.

    Loading pyarrow and pytest-benchmark and asking for the machine's description take 0.3 s of CPU
    and as long again of waiting for other programs; a run that mostly waits has them for nothing,
    where they were 0.4 s at the end of every command.

    It ends with `compact` or `stop`, and by itself when the process that started it is gone.
    """

    def __init__(self, run_dir: Path, child: Child, cwd: Path | None) -> None:
        self._run_dir = run_dir
        self._child = child
        self._cwd = cwd

    @property
    def pid(self) -> int:
        """The process that compacts, or will."""
        return self._child.pid

    @classmethod
    def start(cls, run_dir: Path, *, cwd: Path | None = None) -> CompactionProcess:
        """Start the process; returns at once.

        Args:
            run_dir: The run directory.
            cwd: Where the suite stands, since the benchmark JSON names the commit found there.
        """
        return cls(run_dir, _spawn(run_dir, cwd), cwd)

    def follow(self) -> None:
        """Have it read the journal while the run goes on; the manifest stands as planned.

        It reads at the lowest priority, and at the end little is left to be read.
        """
        self._child.tell(FOLLOW + b"\n")

    def compact(
        self,
        written: Callable[[int, int], None] = unheard,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> RunSummary:
        """Have the run compacted and wait for it.

        Args:
            written: Called now and then with how many cases are in the tables, and of how many.
            meanwhile: Called once, when the process is at work and there is nothing to do here.

        Raises:
            ResultsError: The process failed; the journal is as it was, and the message says how to
                try again.
        """
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415

        if not self._child.is_alive:
            # Whatever ended it while it waited has nothing to do with this run's tables.
            self._child.stop()
            self._child = _spawn(self._run_dir, self._cwd)
        child, said = self._child, b""
        try:
            child.tell(_GO)
            meanwhile()
            for said in child.lines():  # the last is the summary, if all went well
                if said.startswith(b"["):
                    written(*msgspec.json.decode(said, type=tuple[int, int]))
            code = child.wait()
        finally:
            self.stop()
        if code != 0:
            why = child.said() or f"python -m {_MODULE} ended with exit code {code}"
            msg = (
                f"no tables were written: {why}\n"
                f"The journal is whole; try again with: {_BY_HAND} {self._run_dir}"
            )
            raise ResultsError(msg)
        return msgspec.json.decode(said, type=RunSummary)

    def kill(self) -> None:
        """End the process whatever it does, and wait for nothing."""
        self._child.kill()

    def stop(self) -> None:
        """End the process if it still waits. Idempotent."""
        self.kill()
        self._child.stop()


def _spawn(run_dir: Path, cwd: Path | None) -> Child:
    return Child.start(_MODULE, str(run_dir.absolute()), cwd=cwd, gives_way=True)
