"""Start and stop the process that compacts a run. The coordinator uses this module."""

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
    """The process that compacts a run. It is started before there is anything to compact.

    It first loads pyarrow and pytest-benchmark, and collects the description of the machine. This
    takes 0.3 s of CPU time, and another 0.3 s of waiting for other programs. During a run that is
    mostly waiting, this costs nothing. At the end, it would add 0.4 s to every command.

    The process ends after `compact`, `rest` or `stop`, or when the process that started it ends.
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
            cwd: The suite's directory. The benchmark JSON describes the commit that is checked out
                there.
            afterwards: The full names of modules. Once the tables are made and `go_on` or `rest`
                has been called, the process calls `at_end(run_dir)` in each module. `rest` waits
                until these calls have ended.
        """
        return cls(run_dir, _spawn(run_dir, cwd, afterwards), cwd, afterwards)

    def follow(self) -> None:
        """Let the process read the journal during the run; the manifest must already have the plan.

        It reads only while no other process needs the CPU. So little is left to do at the end.
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
            written: Called from time to time with the number of cases written to the tables so far,
                and the total number of cases.
            meanwhile: Called once, while the process is working and the caller would otherwise only
                wait.
            said: Called with a sentence for the user if the process was killed.

        Raises:
            ResultsError: The tables could not be made. The journal is unchanged, and the message
                shows how to try again.
        """
        if not self._child.is_alive:
            # The process ended while it was waiting, so this run's tables were not the cause.
            self._start_again()
        summary, code = self._asked(written, meanwhile)
        if summary is None and code < 0:
            said(
                f"process {self.pid} was killed by signal {-code} while writing the tables; it is "
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
        """Return the summary and 0, or None and the exit code if the process printed no summary."""
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415 - when needed

        try:
            self._child.tell(_GO)
            meanwhile()
            line = self._summary_line(written)
        except BaseException:
            self.stop()
            raise
        with suppress(msgspec.DecodeError):  # a killed process's last line may be cut off
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
        """Return the line with the summary; empty if the process ends without printing one."""
        for line in self._child.lines():
            if not line.startswith(b"["):
                return line
            written(*msgspec.json.decode(line, type=tuple[int, int]))
        return b""

    def go_on(self) -> None:
        """Say that the run's files are final, so that the work after the tables can begin."""
        if self._afterwards:
            self._child.tell(_GO)

    def rest(self) -> str | None:
        """Wait for the work that follows the tables to end; return why it failed, or None.

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
            return f"process {self.pid} was killed by signal {-code}"
        return (self._child.said() or f"exit code {code}").splitlines()[-1] if code else None

    def kill(self) -> None:
        """Kill the process without waiting for its end; this may be called at any time."""
        self._child.kill()

    def stop(self) -> None:
        """Stop the process if it is still running. Idempotent."""
        self.kill()
        self._child.stop()


def _spawn(run_dir: Path, cwd: Path | None, afterwards: Sequence[str]) -> Child:
    return Child.start(_MODULE, str(run_dir.absolute()), *afterwards, cwd=cwd, own_session=False)
