"""Pytest's side of the processes that run a grader."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from multiprocessing import Pipe
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.system.child import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection

    from pytest_ultrapar.session.graders import GraderFunction

Result = tuple[str, str | None, Any]
"""`returned`, `unsolved` or `error`; what kind of that, if any; the value, or why there is none."""


class GraderPool:
    """Hands cases to processes, which are started with the first and whenever they have died.

    Args:
        grader: What they run.
        run: Names what its workers have in common, and no other run has.
        environ: Of the processes.
        graded: Called once for each case, on a thread of this or on that of `submit`.
    """

    def __init__(
        self,
        grader: GraderFunction,
        *,
        run: str,
        environ: Mapping[str, str],
        graded: Callable[[int, str, Result], None],
    ) -> None:
        self._grader = grader
        self._place = f"ultrapar-{run}-{grader.name:.50}"
        self._environ = environ
        self._graded = graded
        self._lock = Lock()
        self._open: set[int] = set()
        self._child: Child | None = None
        self._pipe: Connection | None = None

    def submit(self, index: int, arguments: Mapping[str, object]) -> None:
        """Have the case at a position graded."""
        try:
            given = pickle.dumps(arguments)
        except Exception as error:  # noqa: BLE001 - classes of the suite say how they are pickled
            self._tell(index, f"an argument of the grader cannot be pickled: {error}")
            return
        with self._lock:
            pipe = self._pipe or self._start()
            self._open.add(index)
            with suppress(OSError):  # they have died, as the reader is about to see
                pipe.send_bytes(pickle.dumps((index, given)))

    def stop(self) -> None:
        """End the processes."""
        if self._child is not None:
            self._child.stop()

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            at = theirs.fileno()
            name = "pytest_ultrapar.session.grading_process"
            self._child = Child.start(name, str(at), environ=self._environ, inherited=[at])
        one = self._grader
        own = (one.module, one.file, one.name, one.timeout_s, one.memory_mb)
        ours.send_bytes(pickle.dumps((sys.path, self._place, int(one.jobs), *own)))
        self._pipe = ours
        reads = (ours, self._child)
        Thread(target=self._read, args=reads, name="ultrapar-grader", daemon=True).start()
        return ours

    def _read(self, pipe: Connection, child: Child) -> None:
        with suppress(EOFError, OSError):
            while True:
                index, said = pickle.loads(pipe.recv_bytes())  # noqa: S301 - no sandbox either way
                self._open.remove(index)
                try:
                    self._graded(index, self._grader.name, pickle.loads(said))  # noqa: S301 - as above
                except Exception as error:  # noqa: BLE001 - as where arguments are pickled
                    self._tell(index, f"what the grader returned cannot be read: {error}")
        with self._lock:
            self._pipe = None
            lost, self._open = self._open, set()
        for index in lost:
            self._tell(index, f"the processes of the grader died: {child.said() or 'no word'}")

    def _tell(self, index: int, error: str) -> None:
        self._graded(index, self._grader.name, ("error", None, error))
