"""Control the processes of a grader, from pytest's process."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from multiprocessing import Pipe
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from pytest_ultrapar.system.child import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_ultrapar.session.graders import GraderFunction

_MOST_TRIES = 3
"""The maximum number of tries for each case. One try is not enough, because the program that a case
runs may kill the grader's processes."""
_MOST_STARTS = 10
"""The maximum number of times that the processes are started, if they are killed each time."""


class GraderPool:
    """Sends cases to grader processes; one thread for each job waits for the results.

    Args:
        grader: The function to run.
        run_dir: The folder for the lock file with which all workers together keep to the grader's
            maximum number of jobs.
        environ: The environment variables of the processes.
        graded: Called once for each case, on a thread of this pool or on the thread that calls
            `submit`. It gets the case's position, the grader's name, and a pickled tuple. The tuple
            contains `returned`, `unsolved` or `error`; the kind of the outcome, if any; and the
            value, or the reason why there is no value.
    """

    def __init__(
        self,
        grader: GraderFunction,
        *,
        run_dir: Path,
        environ: Mapping[str, str],
        graded: Callable[[int, str, bytes], None],
    ) -> None:
        self._grader, self._environ, self._graded = grader, environ, graded
        self._places = run_dir.absolute() / f"grader-{grader.name:.50}.lock"
        self._places.touch(0o600)
        self._waiting: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._changing = Lock()
        self._starts_left = _MOST_STARTS
        self._start()
        for n in range(grader.jobs):
            Thread(target=self._job, args=(n,), name="ultrapar-grader", daemon=True).start()

    def _start(self) -> None:
        self._starts_left -= 1
        grader = self._grader
        self._pipes, theirs = zip(*(Pipe() for _ in range(grader.jobs)), strict=True)
        at = [one.fileno() for one in theirs]
        name = "pytest_ultrapar.session.grading_process"
        self._child = Child.start(name, *map(str, at), environ=self._environ, inherited=at)
        own = (grader.module, grader.file, grader.name, grader.timeout_s, grader.memory_mb)
        self._pipes[0].send_bytes(pickle.dumps((sys.path, self._places, *own)))
        for others in theirs:
            others.close()

    def submit(self, index: int, arguments: Mapping[str, object]) -> None:
        """Queue a case for grading; `index` is its position in pytest's collection."""
        try:
            self._waiting.put((index, pickle.dumps(arguments)))
        except Exception as error:  # noqa: BLE001 - classes of the suite define how they are pickled
            why = f"an argument of the grader cannot be pickled: {error}"
            self._graded(index, self._grader.name, pickle.dumps(("error", None, why)))

    def stop(self) -> None:
        """End the grader's processes, and all the processes that they started."""
        with self._changing:
            self._starts_left = 0
        for pipe in self._pipes:
            # Shut the socket down first: closing it has no effect while a thread is reading from
            # it.
            with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        self._child.stop()

    def _job(self, n: int) -> None:
        while True:
            index, given = self._waiting.get()
            self._graded(index, self._grader.name, self._result(n, given))

    def _result(self, n: int, given: bytes) -> bytes:
        for _ in range(_MOST_TRIES):
            with self._changing:
                child, pipe = self._child, self._pipes[n]
            try:
                pipe.send_bytes(given)
                return bytes(pipe.recv_bytes())
            except (EOFError, OSError):
                why = f"the grader's process ended without a result: {self._lost(child)}"
        return pickle.dumps(("error", None, why))

    def _lost(self, child: Child) -> str:
        """Describe how the processes ended; if they were killed, start new ones."""
        with self._changing:
            child.stop()
            code = child.wait()
            with suppress(OSError):  # there may be too little memory
                if code < 0 and self._child is child and self._starts_left:
                    self._start()
        said = child.said().rpartition("\n")[2]
        return signal.Signals(-code).name if code < 0 else said or f"exit code {code}"
