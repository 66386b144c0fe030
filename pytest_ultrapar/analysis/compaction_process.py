"""Start and stop the process that compacts a run; the coordinator uses this module."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.compaction_child import FOLLOW
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.system.child import Child
from pytest_ultrapar.system.files import sweep_temporaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary


_MODULE = "pytest_ultrapar.analysis.compaction_child"
_BY_HAND = "python -m pytest_ultrapar.analysis.compact"
_GO = b"go\n"


class CompactionProcess:
    """The process that compacts a run; it is started before there is anything to compact.

    It loads pyarrow and pytest-benchmark, and reads the machine's description. This takes 0.3 s of
    CPU time, and as long again in waits for other programs. It costs nothing during a run that
    mostly waits. Done at the end, it would add 0.4 s to every command.

    The process ends with `compact`, `rest` or `stop`, or if the process that started it ends.
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
        """The id of the process."""
        return self._child.pid

    @classmethod
    def start(
        cls, run_dir: Path, *, cwd: Path | None = None, afterwards: Sequence[str] = ()
    ) -> CompactionProcess:
        """Start the process and return immediately.

        Args:
            run_dir: The run directory.
            cwd: The suite's directory, because the benchmark JSON describes the commit there.
            afterwards: The full names of modules. The process calls `at_end(run_dir)` of each of
                them after the tables, as soon as `go_on` or `rest` is called; `rest` waits for
                them.
        """
        return cls(run_dir, _spawn(run_dir, cwd, afterwards), cwd, afterwards)

    def follow(self) -> None:
        """Let the process read the journal during the run; the plan must be in the manifest.

        It reads while other processes do not need the CPU, so little is left for the end.
        """
        self._child.tell(FOLLOW + b"\n")

    def compact(
        self,
        written: Callable[[int, int], None] = lambda _done, _total: None,
        meanwhile: Callable[[], None] = lambda: None,
        said: Callable[[str], None] = lambda _sentence: None,
    ) -> RunSummary:
        """Have the process compact the run, and wait for the result.

        If the process is killed, it is started again once.

        Args:
            written: Called from time to time with the number of cases in the tables and the number
                of all cases.
            meanwhile: Called once, while the process works and the caller would only wait.
            said: Called with a sentence if the process was killed.

        Raises:
            ResultsError: The tables could not be made; the journal is unchanged, and the message
                shows how to try again.
        """
        if not self._child.is_alive:
            # The process ended while it waited, but not because of this run's tables.
            self._start_again()
        summary, code = self._asked(written, meanwhile)
        if summary is None and code < 0:
            said(
                f"process {self.pid} was ended by signal {-code} while it wrote the tables; it is "
                "being restarted"
            )
            self._start_again()
            summary, code = self._asked(written, lambda: None)
        if summary is not None:
            return summary
        raise ResultsError(
            "no tables were written: "
            f"{self._child.said() or f'python -m {_MODULE} ended with exit code {code}'}\n"
            f"The journal is complete; try again with: {_BY_HAND} {self._run_dir}"
        )

    def _start_again(self) -> None:
        self._child.stop()
        self._child = _spawn(self._run_dir, self._cwd, self._afterwards)

    def _asked(
        self, written: Callable[[int, int], None], meanwhile: Callable[[], None]
    ) -> tuple[RunSummary | None, int]:
        """Return the summary; or None and the exit code, if the process ended without one."""
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415 - when needed

        try:
            self._child.tell(_GO)
            meanwhile()
            line = self._summary_line(written)
        except BaseException:
            self.stop()
            raise
        with suppress(msgspec.DecodeError):  # a cut-off line is from a process that was killed
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
        """Return the summary as the process prints it; empty if it ends without a summary."""
        for line in self._child.lines():
            if not line.startswith(b"["):
                return line
            written(*msgspec.json.decode(line, type=tuple[int, int]))
        return b""

    def go_on(self) -> None:
        """Let the process begin the work after the tables: the run's files are now final."""
        if self._afterwards:
            self._child.tell(_GO)

    def rest(self) -> str | None:
        """Wait for the work after the tables; return a sentence if it failed, otherwise None.

        Call it only once, after `compact`.
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
            return f"process {self.pid} was ended by signal {-code}"
        return (self._child.said() or f"exit code {code}").splitlines()[-1] if code else None

    def kill(self) -> None:
        """Kill the process at any time, without waiting for its end."""
        self._child.kill()

    def stop(self) -> None:
        """Stop the process if it still waits. Idempotent."""
        self.kill()
        self._child.stop()


def _spawn(run_dir: Path, cwd: Path | None, afterwards: Sequence[str]) -> Child:
    return Child.start(_MODULE, str(run_dir.absolute()), *afterwards, cwd=cwd, own_session=False)
