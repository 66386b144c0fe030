"""Starts and ends the process that compacts a run; used by the process that coordinates it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.compactor import FOLLOW
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.system.child import Child
from pytest_ultrapar.system.files import sweep_temporaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary


_MODULE = "pytest_ultrapar.analysis.compactor"
_BY_HAND = "python -m pytest_ultrapar.analysis.compact"
_GO = b"go\n"


class CompactionProcess:
    """The process that will compact a run, started before there is anything to compact.

    Loading pyarrow and pytest-benchmark and asking for the machine's description take 0.3 s of CPU
    and as long again of waiting for other programs; a run that mostly waits has them for nothing,
    where they were 0.4 s at the end of every command.

    It ends with `compact`, `rest` or `stop`, and by itself when the process that started it is
    gone.
    """

    def __init__(
        self, run_dir: Path, child: Child, cwd: Path | None, afterwards: Sequence[str]
    ) -> None:
        self._run_dir = run_dir
        self._child = child
        self._cwd = cwd
        self._afterwards = afterwards

    @property
    def pid(self) -> int:
        """The process that compacts, or will."""
        return self._child.pid

    @classmethod
    def start(
        cls, run_dir: Path, *, cwd: Path | None = None, afterwards: Sequence[str] = ()
    ) -> CompactionProcess:
        """Start the process; returns at once.

        Args:
            run_dir: The run directory.
            cwd: Where the suite stands, since the benchmark JSON names the commit found there.
            afterwards: Full names of modules whose `at_end(run_dir)` it calls when the tables are
                made and `go_on` or `rest` says so; `rest` waits for them.
        """
        return cls(run_dir, _spawn(run_dir, cwd, afterwards), cwd, afterwards)

    def follow(self) -> None:
        """Have it read the journal while the run goes on; the manifest stands as planned.

        It reads while nobody else wants the CPU, and at the end little is left to be read.
        """
        self._child.tell(FOLLOW + b"\n")

    def compact(
        self,
        written: Callable[[int, int], None] = lambda _done, _total: None,
        meanwhile: Callable[[], None] = lambda: None,
        said: Callable[[str], None] = lambda _sentence: None,
    ) -> RunSummary:
        """Have the run compacted and wait for it.

        Should the process be killed, it is started once more.

        Args:
            written: Called now and then with how many cases are in the tables, and of how many.
            meanwhile: Called once, when the process is at work and there is nothing to do here.
            said: Called with a sentence when the process is gone.

        Raises:
            ResultsError: The tables could not be made; the journal is as it was, and the message
                says how to try again.
        """
        if not self._child.is_alive:
            # Whatever ended it while it waited has nothing to do with this run's tables.
            self._start_again()
        summary, code = self._asked(written, meanwhile)
        if summary is None and code < 0:
            said(
                f"process {self.pid}, which made the tables, ended by signal {-code}; "
                "it is started once more"
            )
            self._start_again()
            summary, code = self._asked(written, lambda: None)
        if summary is not None:
            return summary
        raise ResultsError(
            "no tables were written: "
            f"{self._child.said() or f'python -m {_MODULE} ended with exit code {code}'}\n"
            f"The journal is whole; try again with: {_BY_HAND} {self._run_dir}"
        )

    def _start_again(self) -> None:
        self._child.stop()
        self._child = _spawn(self._run_dir, self._cwd, self._afterwards)

    def _asked(
        self, written: Callable[[int, int], None], meanwhile: Callable[[], None]
    ) -> tuple[RunSummary | None, int]:
        """The summary, or with None the exit code of a process that ended without one."""
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415 - when needed

        try:
            self._child.tell(_GO)
            meanwhile()
            line = self._summary_line(written)
        except BaseException:
            self.stop()
            raise
        with suppress(msgspec.DecodeError):  # a line that is torn is of a process that was killed
            if line:
                summary = msgspec.json.decode(line, type=RunSummary)
                if not self._afterwards:
                    self._child.wait()
                    self.stop()
                return summary, 0
        code = self._child.wait()
        self.stop()
        return None, code

    def _summary_line(self, written: Callable[[int, int], None]) -> bytes:
        """The summary as the process prints it; empty where it ends without one."""
        for line in self._child.lines():
            if not line.startswith(b"["):
                return line
            written(*msgspec.json.decode(line, type=tuple[int, int]))
        return b""

    def go_on(self) -> None:
        """Have it begin what comes after the tables: the run's files are final."""
        if self._afterwards:
            self._child.tell(_GO)

    def rest(self) -> str | None:
        """Wait for what comes after the tables; a sentence that says why it failed, else None.

        Only after `compact`, and once.
        """
        if not self._afterwards:
            return None
        self.go_on()
        try:
            code = self._child.wait()
        finally:
            self.stop()
        if code < 0:
            sweep_temporaries(self._run_dir)
            return f"process {self.pid} ended by signal {-code}"
        return (self._child.said() or f"exit code {code}").splitlines()[-1] if code else None

    def kill(self) -> None:
        """End the process whatever it does, and wait for nothing."""
        self._child.kill()

    def stop(self) -> None:
        """End the process if it still waits. Idempotent."""
        self.kill()
        self._child.stop()


def _spawn(run_dir: Path, cwd: Path | None, afterwards: Sequence[str]) -> Child:
    return Child.start(_MODULE, str(run_dir.absolute()), *afterwards, cwd=cwd, own_session=False)
