"""The processes that run a grader: one imports its module, and forks one for each job.

Each job forks another for each case: what a program that a model wrote does there, it does to a
process of its own, which has neither our keys nor our streams. That is no sandbox. They have one
thread each, unlike pytest, and so may fork.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
import warnings
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_EVERY_S = 0.5
_TRY_AGAIN_S = 0.02
"""Until a job asks again for the place that the same job of another worker has."""


def main(pipe: Connection) -> None:
    """Grade what comes by a pipe that all jobs share, until our standard input ends."""
    warnings.simplefilter("ignore")  # a fork beside threads of the suite's libraries
    os.dup2(2, 1)
    sys.path[:], place, n_jobs, *own = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of pytest
    module, file, name, timeout_s, memory_mb = own
    function = _load(module, file, name)
    for n in range(n_jobs):
        if os.fork() == 0:
            with suppress(EOFError, OSError):
                at, parent = f"\0{place}-{n}", os.getppid()
                _Job(pipe, at, function, name, timeout_s, memory_mb, parent).serve()
            os._exit(1)
    # Its case would be waited for for ever: let pytest see the end of all.
    signal.signal(signal.SIGCHLD, lambda *_: os._exit(1))
    sys.stdin.read()


def _load(name: str, file: str, function: str) -> Callable[..., object]:
    """A grader, from its module's own file: pytest finds modules that `import` does not."""
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    from pytest_ultrapar.session.graders import functions  # noqa: PLC0415 - imports pytest

    return functions[name, function]


@contextmanager
def _turn(at: int) -> Iterator[None]:
    """What one job at a time does; the kernel frees what dies.

    Our standard error is a file that no other process of pytest has.
    """
    fcntl.lockf(2, fcntl.LOCK_EX, 1, at)
    try:
        yield
    finally:
        fcntl.lockf(2, fcntl.LOCK_UN, 1, at)


class _Job(NamedTuple):
    """A process that has one case at a time."""

    pipe: Connection
    place: str
    function: Callable[..., object]
    name: str
    timeout_s: float
    memory_mb: int | None
    parent: int

    def serve(self) -> None:
        """Grade what comes, until what forked us is gone."""
        while True:
            with _turn(0):
                while not self.pipe.poll(_LOOK_EVERY_S):
                    if os.getppid() != self.parent:
                        return
                number, given = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - of pytest
            with socket.socket(socket.AF_UNIX) as place:
                while True:
                    with suppress(OSError):
                        place.bind(self.place)
                        break
                    sleep(_TRY_AGAIN_S)
                said = self._graded(given, place)
            with _turn(1):
                self.pipe.send_bytes(pickle.dumps((number, said)))

    def _graded(self, given: bytes, place: socket.socket) -> bytes:
        """What a process of its own makes of a case; it ends with all that it started."""
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                place.close()
                self._work(theirs, given)
            os._exit(0)
        theirs.close()
        with suppress(OSError):
            os.setpgid(pid, pid)
        until_s = monotonic() + self.timeout_s
        said: bytes | None = self._unsolved("time_limit", f"took longer than {self.timeout_s:g} s")
        while (left_s := until_s - monotonic()) > 0 and os.getppid() == self.parent:
            if ours.poll(min(left_s, _LOOK_EVERY_S)):
                said = None
                with suppress(EOFError):
                    said = ours.recv_bytes()
                break
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        ours.close()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return said or self._unsolved("died", f"died: {how}")

    def _work(self, pipe: Connection, given: bytes) -> None:
        os.setpgid(0, 0)
        self.pipe.close()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        if self.memory_mb is not None:
            with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - `self` is looked up here
                size = int(statm.read().split()[0]) * resource.getpagesize()
            size += int(self.memory_mb * 2**20)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        pipe.send_bytes(self._said(given))

    def _said(self, given: bytes) -> bytes:
        try:
            value = self.function(**pickle.loads(given))  # noqa: S301 - of pytest
            return pickle.dumps(("returned", None, value))
        except AssertionError as error:
            return self._unsolved(None, f"failed: {error}")
        except MemoryError:
            return self._unsolved("memory_limit", f"took more memory than {self.memory_mb} MB")
        except SystemExit as error:
            return self._unsolved("died", f"died: exit code {error.code}")
        except BaseException as error:  # noqa: BLE001 - whatever it is, the case has it
            said = traceback.format_exception_only(error)[-1].strip()
            frames = error.__traceback__ and error.__traceback__.tb_next  # the first is ours
            lines = traceback.format_exception(type(error), error, frames)
            told = f"{said}\n\n{''.join(lines)}"
            return pickle.dumps(("error", None, told))

    def _unsolved(self, kind: str | None, why: str) -> bytes:
        return pickle.dumps(("unsolved", kind, f"grader {self.name} {why}"))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
