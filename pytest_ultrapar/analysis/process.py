"""Starts and ends the process that compacts a run; used by the process that coordinates it."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.beside import FOLLOW
from pytest_ultrapar.child import Child
from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary


_MODULE = "pytest_ultrapar.analysis.beside"
_BY_HAND = "python -m pytest_ultrapar.analysis.compact"
_HERE = "; the tables are made in this process"
_GO = b"go\n"
_LOOK_S = 1.0
SAY_S = 5.0
"""A process that waits for a disk or for memory may be still for a while."""
MOST_S = 30.0
"""And then it is not going to move: it was stopped, as by SIGSTOP."""
_LATE_S = 5.0


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
        self._is_here = False

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
                made, while `compact` returns already; `rest` waits for them.
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

        Should the process be killed, or not move for `MOST_S`, the tables are made in this one.

        Args:
            written: Called now and then with how many cases are in the tables, and of how many.
            meanwhile: Called once, when the process is at work and there is nothing to do here.
            said: Called with a sentence when the process does not move or is gone.

        Raises:
            ResultsError: The tables could not be made; the journal is as it was, and the message
                says how to try again.
        """
        if not self._child.is_alive:
            # Whatever ended it while it waited has nothing to do with this run's tables.
            self._child.stop()
            self._child = _spawn(self._run_dir, self._cwd, self._afterwards)
        child = self._child
        try:
            child.tell(_GO)
            meanwhile()
            line = self._summary_line(written, said)
        except _StuckError:
            said(f"process {self.pid} has still not moved and is killed{_HERE}")
            self.stop()
            return self._compact_here(written)
        except BaseException:
            self.stop()
            raise
        from pytest_ultrapar.analysis.run_summary import RunSummary  # noqa: PLC0415 - when needed

        with suppress(msgspec.DecodeError):  # a line that is torn is of a process that was killed
            if line:
                summary = msgspec.json.decode(line, type=RunSummary)
                if not self._afterwards:
                    child.wait()
                    self.stop()
                return summary
        code = child.wait()
        self.stop()
        if code < 0:
            said(f"process {child.pid}, which made the tables, ended by signal {-code}{_HERE}")
            return self._compact_here(written)
        raise self._failed(child.said() or f"python -m {_MODULE} ended with exit code {code}")

    def _summary_line(
        self, written: Callable[[int, int], None], said: Callable[[str], None]
    ) -> bytes:
        """The summary as the process prints it; empty where it ends without one.

        Raises:
            _StuckError: It does not move.
        """
        late = partial(said, _still(self.pid, "the tables", "this process makes them"))
        for line in self._lines(late):
            if line.startswith(b"["):
                written(*msgspec.json.decode(line, type=tuple[int, int]))
            elif line:
                return line
        return b""

    def _lines(self, late: Callable[[], None]) -> Iterator[bytes]:
        """The lines that the process prints until its end, and empty ones between them.

        Args:
            late: Called once when it has not moved for `SAY_S`.

        Raises:
            _StuckError: It has not moved for `MOST_S`.
        """
        stillness, last = Stillness(time.monotonic()), b""
        for line in self._child.lines(_LOOK_S):
            yield line
            last = line or last
            still_s, is_new = stillness.look((last, self._child.cpu_ticks()), time.monotonic())
            if still_s >= MOST_S:
                raise _StuckError
            if is_new:
                late()

    def rest(self, said: Callable[[str], None] = lambda _sentence: None) -> str | None:
        """Wait for what comes after the tables; a sentence that says why it failed, else None.

        Only after `compact`, and once.

        Args:
            said: Called with a sentence when the process does not move.
        """
        if self._is_here or not self._afterwards:
            return self._rest_here()
        child = self._child
        late = partial(said, _still(child.pid, "the page", "the run ends without one"))
        try:
            for _ in self._lines(late):
                pass
            code = child.wait()
        except _StuckError:
            return f"process {child.pid} has not moved for {MOST_S:g} s"
        finally:
            self.stop()
        if code < 0:
            return f"process {child.pid} ended by signal {-code}"
        return (child.said() or f"exit code {code}").splitlines()[-1] if code else None

    def _rest_here(self) -> str | None:
        for name in self._afterwards:
            try:
                import_module(name).at_end(self._run_dir)
            except Exception as error:  # noqa: BLE001 - no run fails for what comes after it
                return str(error) or type(error).__name__
        return None

    def _compact_here(self, written: Callable[[int, int], None]) -> RunSummary:
        self._is_here = True
        # 50 MB of pyarrow that this process otherwise does without.
        from pytest_ultrapar.analysis.compaction import compact  # noqa: PLC0415

        try:
            return compact(self._run_dir, written)
        except ResultsError as error:
            raise self._failed(str(error)) from error

    def _failed(self, why: str) -> ResultsError:
        return ResultsError(
            f"no tables were written: {why}\n"
            f"The journal is whole; try again with: {_BY_HAND} {self._run_dir}"
        )

    def kill(self) -> None:
        """End the process whatever it does, and wait for nothing."""
        self._child.kill()

    def stop(self) -> None:
        """End the process if it still waits. Idempotent."""
        self.kill()
        self._child.stop()


def _still(pid: int, made: str, otherwise: str) -> str:
    """What to say of a process that does not move, what it makes, and what happens without it."""
    return (
        f"waiting for process {pid}, which makes {made} and has not moved for {SAY_S:g} s: was it"
        f" stopped? `kill -CONT {pid}` lets it go on; after {MOST_S:g} s {otherwise}"
    )


def _spawn(run_dir: Path, cwd: Path | None, afterwards: Sequence[str]) -> Child:
    return Child.start(_MODULE, str(run_dir.absolute()), *afterwards, cwd=cwd, own_session=False)


class _StuckError(Exception):
    """A process has not moved for `MOST_S`."""


class Stillness:
    """How long a process has given no sign; pure, the time is told.

    Args:
        now_s: Monotonic seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._sign: object = None
        self._since_s = self._looked_s = now_s
        self._is_said = False

    def look(self, sign: object, now_s: float) -> tuple[float, bool]:
        """Take in what is seen of the process now.

        Args:
            sign: Whatever changes while it works.
            now_s: Monotonic seconds.

        Returns:
            For how many seconds it has not changed, and whether it is time to say so, once.
        """
        # Who looks late was stopped itself, as by Ctrl-Z, and so was the process.
        if sign != self._sign or now_s - self._looked_s > _LATE_S:
            self._sign, self._since_s, self._is_said = sign, now_s, False
        self._looked_s = now_s
        still_s = now_s - self._since_s
        is_new = still_s >= SAY_S and not self._is_said
        self._is_said |= is_new
        return still_s, is_new
