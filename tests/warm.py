"""Children of the tests that start in 10 ms: forked from a process that has imported everything.

A run in this process (`run_here`) starts `python -m pytest_ultrapar.analysis.compact`, which spends
0.4 s of CPU on imports, in some three hundred tests. `Warm` starts the same program with the same
pipes, environment and parent as a fork of a process that has its imports behind it. Tests of how a
child starts, and all runs that are processes of their own, start theirs in the ordinary way.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest_ultrapar

MODULES = ("pytest_ultrapar.analysis.compact", "pytest_ultrapar.simulator")
_ROOT = str(Path(pytest_ultrapar.__file__).parents[1])
# The parent of a child must be who asked for it, as if it had forked it itself: it waits for it and
# the child looks whether it is still there. `os.fork` cannot give a child to one's own parent.
_CLONE_PARENT = 0x8000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_MESSAGE_BYTES = 1 << 17


class Warm(subprocess.Popen[bytes]):
    """Starts our own modules warm, and everything else as `subprocess` does."""

    def _execute_child(self, args: Any, *how: Any) -> None:
        names = super()._execute_child.__code__.co_varnames[2:]  # type: ignore[misc]
        told = dict(zip(names, how, strict=False))
        pipes = [told["p2cread"], told["c2pwrite"], told["errwrite"]]
        env = os.environ if told["env"] is None else told["env"]
        module = _module(args)
        if (
            module is None
            or min(pipes) < 0
            or told["pass_fds"]
            or told["preexec_fn"]
            or _python(env) != _python(os.environ)
        ):
            super()._execute_child(args, *how)  # type: ignore[misc]
            return
        try:
            order = {
                "module": module,
                "argv": args[args.index(module) + 1 :],
                "env": dict(env),
                "cwd": os.fspath(told["cwd"] or Path.cwd()),
                "setsid": told["start_new_session"],
            }
            stem = _stem()
            socket.send_fds(stem, [json.dumps(order).encode()], pipes)
            self.pid = int(stem.recv(64))
            self._child_created = True
        finally:
            self._close_pipe_fds(  # type: ignore[attr-defined]
                *(told[name] for name in names[names.index("p2cread") :][:6])
            )


def _module(args: Any) -> str | None:
    """Which of our modules a command line runs, if it runs one of `MODULES`."""
    if _SYS_CLONE is None or not isinstance(args, list) or args[0] != sys.executable:
        return None
    words = [word for word in args[1:4] if word != "-P"]
    return words[1] if words[0] == "-m" and words[1] in MODULES else None


def _python(env: Any) -> dict[str, Any]:
    """What an environment says to the interpreter, apart from where this package is."""
    found = {
        name: value
        for name, value in env.items()
        if name.startswith("PYTHON") and name not in {"PYTHONPATH", "PYTHONSAFEPATH"}
    }
    return {**found, "path": set(env.get("PYTHONPATH", "").split(os.pathsep)) - {_ROOT, ""}}


@cache
def _stem() -> socket.socket:
    """The process to fork from; it ends with the last end of this socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def main() -> None:
    """Fork whenever told to; runs in the process to fork from."""
    stem = socket.socket(fileno=int(sys.argv[1]))
    # Threads of a library are not there after a fork.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from pytest_ultrapar.analysis import benchmark_json

    benchmark_json.machine_info()
    from scipy import optimize, special  # noqa: F401

    from pytest_ultrapar.analysis import compaction  # noqa: F401
    from pytest_ultrapar.simulator import server  # noqa: F401
    from pytest_ultrapar.store import parquet  # noqa: F401

    gc.freeze()
    python = ctypes.pythonapi
    # It must keep the interpreter lock, which `CDLL` gives up.
    libc = ctypes.PyDLL(None)
    while True:
        said, fds, _, _ = socket.recv_fds(stem, _MESSAGE_BYTES, 3)
        if not said:
            return
        python.PyOS_BeforeFork()
        pid = libc.syscall(_SYS_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            python.PyOS_AfterFork_Child()
            stem.close()
            _become(json.loads(said), fds)
        python.PyOS_AfterFork_Parent()
        for fd in fds:
            os.close(fd)
        stem.send(str(pid).encode())


def _become(order: dict[str, Any], fds: list[int]) -> NoReturn:
    if order["setsid"]:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = [order["module"], *order["argv"]]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    raise SystemExit


if __name__ == "__main__":
    main()
