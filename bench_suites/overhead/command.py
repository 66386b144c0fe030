"""A command run to its end: how long it took, and what it and all its children cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench_suites.overhead.environment import Environment, foreign_plugins
from bench_suites.overhead.workload import ROOT
from pytest_ultrapar.errors import UltraparError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench_suites.overhead.workload import Workload

_SHOWN_CHARACTERS = 2000
_KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: User and system time of the process and of all that it waited for.
        peak_mib: Most resident memory of one of them, in MiB.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float


class CommandError(UltraparError):
    """A command that is measured did not end well, so there is no figure."""


def run_timed(
    argv: Sequence[str],
    environment: Environment,
    *,
    folder: Path = ROOT,
    expected: int = 0,
    started: Callable[[int], object] = lambda _: None,
) -> Cost:
    """Run a command and say what it cost.

    `os.wait4` gives the usage of this child and its descendants alone; `RUSAGE_CHILDREN` would add
    the simulated provider once that ends.

    Args:
        argv: The program and its arguments.
        environment: See `environment.measured_environment`.
        folder: Where it runs; the project's folder unless told.
        expected: The exit code of success.
        started: Called with the process's id.

    Raises:
        CommandError: Its exit code is another one; the message ends with what it said.
    """
    with tempfile.TemporaryFile() as output:
        started_s = time.monotonic()
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and modules, no shell
            argv, cwd=folder, stdout=output, stderr=output, env=environment
        )
        try:
            started(child.pid)
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            child.wait()
            raise
        wall_s = time.monotonic() - started_s
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != expected:
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]
            msg = f"exit code {child.returncode} of {' '.join(argv)}\n{said}"
            raise CommandError(msg)
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / _KIB_PER_MIB)


def pytest_command(workload: Workload, *, url: str, n_processes: int, directory: Path) -> list[str]:
    """The command that runs a workload's cases on a simulated provider that runs at `url`."""
    return [
        *pytest_start(),
        f"-n{n_processes}",
        f"bench_suites/overhead/{workload.test}",
        f"--overhead-cases={workload.n_cases}",
        f"--ultrapar-pool={workload.pool_path}",
        f"--ultrapar-simulator={url}",
        f"--ultrapar-out={directory}",
    ]


def plain_command(workload: Workload, *, n_processes: int) -> list[str]:
    """The command of a plain xdist session that a workload is compared with."""
    return [
        *pytest_start(),
        f"-n{n_processes}",
        f"bench_suites/overhead/{workload.plain_test}",
        f"--overhead-cases={workload.n_cases}",
    ]


def pytest_start() -> list[str]:
    """What all measured pytest commands begin with."""
    blocked = [word for name in foreign_plugins() for word in ("-p", f"no:{name}")]
    # -qq: a progress line that is redrawn is for people, and would be part of the figure.
    return [sys.executable, "-m", "pytest", "-qq", "-p", "no:cacheprovider", *blocked]
