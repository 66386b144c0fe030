"""Pytest's side of the processes that run a grader."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from contextlib import suppress
from multiprocessing import Pipe
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.system.child import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection

    from pytest_ultrapar.session.graders import GraderFunction

Result = tuple[str, str | None, Any]
"""`returned`, `unsolved` or `error`; what kind of that, if any; the value, or why there is none."""


class GraderPool:
    """Hands cases to processes; a thread for each job waits for it.

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
        self._name = grader.name
        self._graded = graded
        self._waiting: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._pipes, theirs = zip(*(Pipe() for _ in range(int(grader.jobs))), strict=True)
        at = [one.fileno() for one in theirs]
        name = "pytest_ultrapar.session.grading_process"
        self._child = Child.start(name, *map(str, at), environ=environ, inherited=at)
        own = (grader.module, grader.file, grader.name, grader.timeout_s, grader.memory_mb)
        place = f"ultrapar-{run}-{grader.name:.50}"
        self._pipes[0].send_bytes(pickle.dumps((sys.path, place, *own)))
        for ours, others in zip(self._pipes, theirs, strict=True):
            others.close()
            Thread(target=self._job, args=(ours,), name="ultrapar-grader", daemon=True).start()

    def submit(self, index: int, arguments: Mapping[str, object]) -> None:
        """Have the case at a position graded."""
        try:
            self._waiting.put((index, pickle.dumps(arguments)))
        except Exception as error:  # noqa: BLE001 - classes of the suite say how they are pickled
            why = f"an argument of the grader cannot be pickled: {error}"
            self._graded(index, self._name, ("error", None, why))

    def stop(self) -> None:
        """End the processes, and all that they run."""
        for pipe in self._pipes:
            # A thread that reads it would keep it open.
            with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        self._child.stop()

    def _job(self, pipe: Connection) -> None:
        while True:
            index, given = self._waiting.get()
            try:
                pipe.send_bytes(given)
                result = pickle.loads(pipe.recv_bytes())  # noqa: S301 - they run as we do
            except Exception as error:  # noqa: BLE001 - as where arguments are pickled
                said = self._child.said().rpartition("\n")[2] or repr(error)
                result = ("error", None, f"the grader's process gave no result: {said}")
            self._graded(index, self._name, result)
