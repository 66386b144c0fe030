"""The measurement of a command: its code, its environment and its cost."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from pytest_ultrapar.errors import ConfigError, UltraparError

ROOT = Path(__file__).parents[2]
"""The project's folder, which contains the pools, and where pytest starts."""

ALONE = ("--confcutdir=benchmarks/overhead",)
"""Arguments that run this suite without the project's conftest, which loads other suites."""

CLIENT_CORE, SERVER_CORE = 0, 1
_SHOWN_CHARACTERS = 2000
_KIB_PER_MIB = 1024
_SAMPLE_S = 0.05

_SETTINGS_OF_RUNS = (
    "PYTEST_",
    "RATE_MODE",
    "NUM_INSTANCES",
    "STORAGE_FORMAT",
    "DEBUG_",
    "MAX_WORKERS",
    "USE_CONCURRENT",
    "USE_MULTI_VLLM",
    "VLLM_PORTS",
    "PYTHON",
)
"""Prefixes of variables that change a run or the speed of Python."""

_OWN_PLUGINS = {"anyio", "benchmark", "ultrapar", "xdist", "xdist.looponfail"}
_NEEDED = frozenset({"PYTHONPATH", "PYTHONHOME"})


class CommandError(UltraparError):
    """A measured command failed, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a command.

    Attributes:
        started_s: The time of its start, in monotonic seconds of the machine.
        wall_s: Seconds from its start to its end.
        cpu_s: User and system time of the process and of all children that it waited for.
        said: Its output on stdout and stderr together.
        peaks_mib: If it was watched, the peak resident memory of each process in MiB.
            `pytest` is the started process. The others are `gw0`, ..., and the tool's own, such as
            `broker`.
    """

    started_s: float
    wall_s: float
    cpu_s: float
    said: str
    peaks_mib: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkout:
    """The code to measure.

    Attributes:
        variables: The environment of its commands (see `measured_environment`).
        folder: A tree of this project.
        python: An interpreter in which that tree is installed.
        suite: The path of this suite in the tree; it was in `bench_suites` until 2026-11-28.
    """

    variables: Mapping[str, str]
    folder: Path = ROOT
    python: str = sys.executable
    suite: str = "benchmarks/overhead"

    def of_python(self, python: Path) -> Checkout:
        """The editable tree that is installed in another environment, with the same variables.

        Raises:
            ConfigError: There is no such tree, or it does not contain this suite.
        """
        find = "import pytest_ultrapar as own; print(own.__file__)"
        folder = Path(said_by(python, find, "--before").strip()).parents[1]
        places = ("benchmarks/overhead", "bench_suites/overhead")
        suite = next((place for place in places if (folder / place).is_dir()), None)
        if suite is None:
            msg = f"--before: {folder} has no benchmarks/overhead; install a checkout with -e"
            raise ConfigError(msg)
        return Checkout(self.variables, folder, str(python), suite)

    def pytest(self, *arguments: str) -> list[str]:
        """A pytest command. All measured commands begin with the same options."""
        blocked = [word for name in foreign_plugins() for word in ("-p", f"no:{name}")]
        # -qq, since drawing a progress line costs time.
        start = [self.python, "-m", "pytest", "-qq", "-p", "no:cacheprovider"]
        return [*start, *blocked, *arguments]

    def run(
        self,
        argv: Sequence[str],
        *,
        folder: Path | None = None,
        expected: int = 0,
        watched: bool = False,
    ) -> Cost:
        """Run a command, and return its cost.

        `os.wait4` returns the usage of only this child and its descendants. `RUSAGE_CHILDREN` also
        includes the simulated provider when that ends.

        Args:
            argv: The program and its arguments.
            folder: The working directory, by default the checkout's folder.
            expected: The exit code of success.
            watched: Whether to watch the memory of each process. This detects the command's end up
                to 0.05 s late.

        Raises:
            CommandError: The exit code differs. The message ends with the output.
        """
        watch = _Watch()
        with tempfile.TemporaryFile() as output:
            started_s = time.monotonic()
            child = subprocess.Popen(
                argv, cwd=folder or self.folder, stdout=output, stderr=output, env=self.variables
            )
            try:
                ended, status, usage = os.wait4(child.pid, os.WNOHANG if watched else 0)
                while not ended:
                    watch.look(child.pid)
                    time.sleep(_SAMPLE_S)
                    ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            except BaseException:
                child.kill()
                child.wait()
                raise
            wall_s = time.monotonic() - started_s
            child.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            said = output.read().decode(errors="replace")
        if child.returncode != expected:
            end = said.strip()[-_SHOWN_CHARACTERS:]
            msg = f"exit code {child.returncode} of {' '.join(argv)}\n{end}"
            raise CommandError(msg)
        cpu_s = usage.ru_utime + usage.ru_stime
        return Cost(started_s, wall_s, cpu_s, said, watch.peaks_mib())


def said_by(python: Path, script: str, option: str) -> str:
    """Run a script in another environment, and return its output.

    Raises:
        ConfigError: The script fails, since that environment lacks a package.
    """
    try:
        return subprocess.run(
            [python, "-P", "-c", script], capture_output=True, text=True, check=True, cwd="/"
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "").strip().rpartition("\n")[2]
        msg = f"{option}: {python} cannot run {script!r} ({error}) {said}"
        raise ConfigError(msg) from error


@contextmanager
def measured_environment() -> Iterator[dict[str, str]]:
    """The environment of all measured commands, which is the same on every machine.

    It contains variables that name a separate folder for compiled files. If bytecode cannot be
    written, as in many containers, every process compiles the tool and rewrites its tests again, in
    0.4 s of CPU.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as compiled:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _NEEDED or not name.startswith(_SETTINGS_OF_RUNS)
        }
        yield {**kept, "PYTHONPYCACHEPREFIX": compiled}


def foreign_plugins() -> list[str]:
    """The installed pytest plugins, except this plugin and its dependencies.

    Their cost is not part of the tool's cost. Hypothesis, installed for the tool's tests, takes 1 s
    of CPU at the end of every pytest command.
    """
    return sorted(entry_points(group="pytest11").names - _OWN_PLUGINS)


def pin_clients() -> None:
    """Bind this process, and all processes that it starts later, to the clients' core.

    Raises:
        ConfigError: This is not possible on this machine.
    """
    if not hasattr(os, "sched_setaffinity"):
        msg = "--pinned needs an operating system that binds processes to cores, such as Linux"
        raise ConfigError(msg)
    if not {CLIENT_CORE, SERVER_CORE} <= os.sched_getaffinity(0):
        allowed = sorted(os.sched_getaffinity(0))
        msg = f"--pinned needs cores {CLIENT_CORE} and {SERVER_CORE} (allowed here: {allowed})"
        raise ConfigError(msg)
    os.sched_setaffinity(0, {CLIENT_CORE})


def pin_server(pid: int) -> None:
    """Bind a running server and all its threads to the server's core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {SERVER_CORE})


class _Watch:
    """The peak memory of each process of a command.

    The kernel keeps each peak (`VmHWM`), so sampling only has to read it before the end. `wait4`
    returns the wrong peak for a small command: the memory of the process that started it.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, float]] = {}

    def look(self, pid: int) -> None:
        """Sample the command and its children."""
        for each, role in processes_of(pid):
            if kib := peak_kib(each):
                self._seen[each] = (role, kib / _KIB_PER_MIB)

    def peaks_mib(self) -> dict[str, float]:
        """The peaks by process. Workers are numbered in the order of their starts."""
        peaks: dict[str, float] = {}
        workers = (f"gw{number}" for number in itertools.count())
        for _, (role, mib) in sorted(self._seen.items()):
            name = next(workers) if role == "worker" else role
            peaks[name] = max(mib, peaks.get(name, 0.0))
        return peaks


def processes_of(pid: int) -> Iterator[tuple[int, str]]:
    """The command and its children, each with its role."""
    yield pid, "pytest"
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(thread).split()):
            words = _read(Path(f"/proc/{child}/cmdline")).split("\0")
            parts = (word.split(".")[1] for word in words if word.startswith("pytest_ultrapar."))
            # execnet starts its workers with `python -u -c "import sys;exec(eval(...))"`.
            yield child, next(parts, "worker" if "-c" in words else "other")


def peak_kib(pid: int) -> int:
    """The peak memory of a process in KiB; 0 if the process has ended."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    """The content of a file in `/proc`; empty if the process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
