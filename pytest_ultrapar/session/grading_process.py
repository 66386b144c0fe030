"""The processes that run a grader: the first imports its module and forks one process for each job.

Each of these job processes forks a new process for each case. A program that a model wrote runs
only in such a new process, without keys and without pytest's streams. This is not a sandbox.
Forking is safe here because these processes, unlike pytest's, have only one thread.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import resource
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import accumulate
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def main(descriptors: list[str]) -> None:
    """Grade the cases that arrive in these pipes (one for each job) until the other ends close."""
    warnings.simplefilter("ignore")  # Python warns of a fork if libraries have threads
    os.dup2(2, 1)
    pipes = [Connection(int(one)) for one in descriptors]
    sys.path[:], places, *own = pickle.loads(pipes[0].recv_bytes())  # noqa: S301 - from pytest
    function = _load(*own[:3])
    jobs: dict[int, int] = {}

    def start(n: int) -> None:
        pid = os.fork()
        if pid == 0:
            for other in {*pipes} - {pipes[n]}:
                other.close()
            with suppress(EOFError, OSError):
                _Job(pipes[n], places, n, function, *own[2:]).serve()
            os._exit(0)
        jobs[pid] = n

    for n in range(len(pipes)):
        start(n)
    with suppress(ChildProcessError, OSError):
        while True:
            pid, status = os.wait()
            n = jobs.pop(pid)
            if status:
                pipes[n].send_bytes(pickle.dumps(("error", None, "the grader killed its parent")))
                start(n)


def _load(name: str, file: str, function: str) -> Callable[..., object]:
    """Load a grader from its module's file: pytest can load modules that `import` does not find."""
    for parent in accumulate(name.split(".")[:-1], "{}.{}".format):
        with suppress(ImportError):  # a name from pytest's `--import-mode=importlib`
            import_module(parent)
        sys.modules.setdefault(parent, ModuleType(parent))
    spec: Any = spec_from_file_location(name, file)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    from pytest_ultrapar.session.graders import functions  # noqa: PLC0415 - imports pytest

    return functions[name, function]


class _Job(NamedTuple):
    """A process that grades one case at a time."""

    pipe: Connection
    places: Path
    n: int
    function: Callable[..., object]
    name: str
    timeout_s: float
    memory_mb: int | None

    def serve(self) -> None:
        """Grade the cases that arrive in the pipe until its other end is closed."""
        while True:
            given = self.pipe.recv_bytes()
            # Lock this job's place, so that no other worker can use it until the file is closed.
            with self.places.open("ab") as place:
                with suppress(OSError):  # a file system without locks
                    fcntl.lockf(place, fcntl.LOCK_EX, 1, self.n)
                self.pipe.send_bytes(self._graded(given))

    def _graded(self, given: bytes) -> bytes:
        """Grade a case in a new process, then kill that process and all others that it started."""
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                self._work(theirs, given)
            os._exit(0)
        theirs.close()
        with suppress(OSError):
            os.setpgid(pid, pid)
        said: bytes | None = self._unsolved("time_limit", f"took longer than {self.timeout_s:g} s")
        # While a case runs, the only possible event on the other pipe is that it is closed.
        if ours in wait([ours, self.pipe], self.timeout_s):
            said = None
            with suppress(EOFError, OSError):  # other data has a larger length or ends too early
                said = ours.recv_bytes(2**29)
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
            value = self.function(**pickle.loads(given))  # noqa: S301 - from pytest
            return pickle.dumps(("returned", None, value))
        except AssertionError as error:
            return self._unsolved(None, f"failed: {error}")
        except MemoryError:
            return self._unsolved("memory_limit", f"used more memory than {self.memory_mb} MiB")
        except SystemExit as error:
            return self._unsolved("died", f"died: exit code {error.code}")
        except BaseException as error:  # noqa: BLE001 - the case reports every error
            said = traceback.format_exception_only(error)[-1].strip()
            frames = error.__traceback__ and error.__traceback__.tb_next  # skip this function
            lines = traceback.format_exception(type(error), error, frames)
            return pickle.dumps(("error", None, f"{said}\n\n{''.join(lines)}"))

    def _unsolved(self, kind: str | None, why: str) -> bytes:
        return pickle.dumps(("unsolved", kind, f"grader {self.name} {why}"))


if __name__ == "__main__":
    main(sys.argv[1:])
