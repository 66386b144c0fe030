"""The one way in which a command is measured: the code, what it finds around it, what it costs."""

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
"""The project's folder: where the pools are and pytest is started."""

ALONE = ("--confcutdir=benchmarks/overhead",)
"""Arguments of pytest for this suite without the project's conftest, which loads other suites."""

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
"""Beginnings of variables that change what a run does or how fast Python is."""

_OWN_PLUGINS = {"anyio", "benchmark", "ultrapar", "xdist", "xdist.looponfail"}
_NEEDED = frozenset({"PYTHONPATH", "PYTHONHOME"})


class CommandError(UltraparError):
    """A command that is measured did not end well, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took.

    Attributes:
        started_s: When it was started, monotonic seconds of the host.
        wall_s: From its start to its end.
        cpu_s: User and system time of the process and of all that it waited for.
        said: What it printed, on either stream.
        peaks_mib: If it was watched, most resident memory of each process in MiB: `pytest` is the
            one that was started, then there are `gw0`, ..., and the tool's own, such as
            `broker`.
    """

    started_s: float
    wall_s: float
    cpu_s: float
    said: str
    peaks_mib: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkout:
    """The code that is measured.

    Attributes:
        variables: The environment of its commands, see `measured_environment`.
        folder: A tree of this project.
        python: An interpreter in which that tree is installed.
        suite: Where the tree has this suite; it stood in `bench_suites` until 2026-11-28.
    """

    variables: Mapping[str, str]
    folder: Path = ROOT
    python: str = sys.executable
    suite: str = "benchmarks/overhead"

    def of_python(self, python: Path) -> Checkout:
        """The tree that is installed in another environment, editable, with the same variables.

        Raises:
            ConfigError: There is none, or it has no suite that measures.
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
        """A pytest command; all that are measured begin alike."""
        blocked = [word for name in foreign_plugins() for word in ("-p", f"no:{name}")]
        # -qq: a progress line that is redrawn is for people, and would be part of the figure.
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
        """Run a command and say what it cost.

        `os.wait4` gives the usage of this child and its descendants alone; `RUSAGE_CHILDREN` would
        add the simulated provider once that ends.

        Args:
            argv: The program and its arguments.
            folder: Where it runs; the checkout's folder unless told.
            expected: The exit code of success.
            watched: Whether to look after the memory of each process; its end is seen 0.05 s late.

        Raises:
            CommandError: Its exit code is another one; the message ends with what it said.
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
    """What a script prints in another environment.

    Raises:
        ConfigError: It fails there, since the environment of the option lacks what is needed.
    """
    try:
        return subprocess.run(
            [python, "-P", "-c", script], capture_output=True, text=True, check=True, cwd="/"
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "").strip().rpartition("\n")[2]
        msg = f"{option}: {python} is no Python that can {script!r} ({error}) {said}"
        raise ConfigError(msg) from error


@contextmanager
def measured_environment() -> Iterator[dict[str, str]]:
    """Variables of all measured commands while entered: the same on every machine.

    It has compiled files of its own: where bytecode may not be written (as in many containers)
    every process would compile the tool and rewrite its tests anew, 0.4 s of CPU each time.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as compiled:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _NEEDED or not name.startswith(_SETTINGS_OF_RUNS)
        }
        yield {**kept, "PYTHONPYCACHEPREFIX": compiled}


def foreign_plugins() -> list[str]:
    """Names of the installed pytest plugins that neither are this one nor come along with it.

    They cost whatever they cost with or without the tool: hypothesis, installed for the tool's own
    tests, takes 1 s of CPU at the end of every pytest command.
    """
    return sorted(entry_points(group="pytest11").names - _OWN_PLUGINS)


def pin_clients() -> None:
    """Bind this process, and so all that it starts from now on, to the clients' core.

    Raises:
        ConfigError: That is not possible here.
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
    """Bind a running server with all its threads to the server's core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {SERVER_CORE})


class _Watch:
    """The memory of a command's processes at their peaks.

    The kernel keeps each peak (`VmHWM`), so looking often only has to catch the end. `wait4` has a
    peak, too, but that of a small command is the memory of whoever started it.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, float]] = {}

    def look(self, pid: int) -> None:
        """Look at the command and its children."""
        for each, role in processes_of(pid):
            if kib := peak_kib(each):
                self._seen[each] = (role, kib / _KIB_PER_MIB)

    def peaks_mib(self) -> dict[str, float]:
        """By process, the workers numbered in the order in which they were started."""
        peaks: dict[str, float] = {}
        workers = (f"gw{number}" for number in itertools.count())
        for _, (role, mib) in sorted(self._seen.items()):
            name = next(workers) if role == "worker" else role
            peaks[name] = max(mib, peaks.get(name, 0.0))
        return peaks


def processes_of(pid: int) -> Iterator[tuple[int, str]]:
    """The command and its children, each with what it is."""
    yield pid, "pytest"
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(thread).split()):
            words = _read(Path(f"/proc/{child}/cmdline")).split("\0")
            parts = (word.split(".")[1] for word in words if word.startswith("pytest_ultrapar."))
            # execnet starts its workers with `python -u -c "import sys;exec(eval(...))"`.
            yield child, next(parts, "worker" if "-c" in words else "other")


def peak_kib(pid: int) -> int:
    """The most memory that a process has held so far; 0 for one that has ended."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    """A file of a process; empty when that is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
