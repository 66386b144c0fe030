"""Peak memory of every process of a run, over 20,000 cases and over as many empty tests."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import CommandError, pytest_command, pytest_start
from bench_suites.overhead.comparison import serving
from bench_suites.overhead.workload import MEMORY, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench_suites.overhead.environment import Environment
    from bench_suites.overhead.workload import Workload

MOST_MIB = 15.0
"""A process may grow by so much more over its cases than over as many empty tests."""

FEW = 300
"""Cases of the small runs: as many as seats, so that every connection and every module is there."""

_SAMPLE_S = 0.02
_MIB = 1024.0
"""KiB, as the kernel counts, per MiB."""

Peaks = dict[str, float]
"""By process (`pytest`, `gw0`, ..., `broker`), its peak of resident memory in MiB."""


class Growth(msgspec.Struct, frozen=True):
    """One process of a run, in MiB.

    Attributes:
        process: `pytest` is the one that was started: the controller with xdist, else the one
            process there is.
        few_mib: Its peak with `FEW` cases.
        many_mib: Its peak with `n` cases.
        empty_few_mib: The same process's peak with as many empty tests; 0 where there is none.
        more_mib: Its growth from few to many, less that of the empty tests.
    """

    client: str
    process: str
    n: int
    few_mib: float
    many_mib: float
    empty_few_mib: float
    empty_many_mib: float
    more_mib: float


def measure_growth(
    n_processes: int,
    *,
    n_cases: int,
    environment: Environment,
    note: Callable[[str], object],
) -> list[Growth]:
    """Run few and many cases and empty tests, and compare each process's growth.

    What does not depend on the number of cases (modules, connections) is in both peaks and so in
    no growth.

    Args:
        n_processes: The `-n` of all runs.
        n_cases: The many.
        environment: See `environment.measured_environment`.
        note: Called with a line before each command.

    Raises:
        CommandError: A command ended badly.
    """
    client = f"-n {n_processes}"

    def cases(n: int) -> Peaks:
        note(f"memory: {client}, {n} cases")
        return _peaks_of_cases(replace(MEMORY, n_cases=n), n_processes, environment)

    def empty(n: int) -> Peaks:
        note(f"memory: {client}, {n} empty tests")
        return peaks_mib(_empty_command(n, n_processes), environment)

    return growth(
        client,
        n_cases,
        few=cases(FEW),
        many=cases(n_cases),
        empty_few=empty(FEW),
        empty_many=empty(n_cases),
    )


def growth(
    client: str,
    n: int,
    *,
    few: Peaks,
    many: Peaks,
    empty_few: Peaks,
    empty_many: Peaks,
) -> list[Growth]:
    """The comparison, a row per process of the run."""
    return [
        Growth(
            client=client,
            process=process,
            n=n,
            few_mib=few[process],
            many_mib=many[process],
            empty_few_mib=empty_few.get(process, 0.0),
            empty_many_mib=empty_many.get(process, 0.0),
            more_mib=(many[process] - few[process])
            - (empty_many.get(process, 0.0) - empty_few.get(process, 0.0)),
        )
        for process in many
    ]


def _peaks_of_cases(workload: Workload, n_processes: int, environment: Environment) -> Peaks:
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        directory = Path(temporary)
        with serving(workload.pool(), directory / "server.jsonl", pinned=False) as url:
            return peaks_mib(
                pytest_command(
                    workload, url=url, n_processes=n_processes, directory=directory / "run"
                ),
                environment,
            )


def _empty_command(n_cases: int, n_processes: int) -> list[str]:
    return [
        *pytest_start(),
        f"-n{n_processes}",
        "bench_suites/overhead/test_empty.py",
        f"--overhead-cases={n_cases}",
    ]


def peaks_mib(argv: Sequence[str], environment: Environment) -> Peaks:
    """Run a pytest command and say how much memory each of its processes had at its peak.

    The kernel keeps the peak (`VmHWM`), so looking often only has to catch the end.

    Raises:
        CommandError: Its exit code is not 0.
    """
    found: dict[int, tuple[str, float]] = {}
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and modules, no shell
            argv, cwd=ROOT, stdout=output, stderr=output, env=environment
        )
        try:
            while child.poll() is None:
                for pid, role in processes_of(child.pid):
                    if kib := peak_kib(pid):
                        found[pid] = (role, kib / _MIB)
                time.sleep(_SAMPLE_S)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        if child.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-2000:]
            msg = f"exit code {child.returncode} of {' '.join(argv)}\n{said}"
            raise CommandError(msg)
    return _named([found[pid] for pid in sorted(found)])


def processes_of(pid: int) -> Iterator[tuple[int, str]]:
    """The command and its children, each with what it is."""
    yield pid, "pytest"
    for child in _children(pid):
        yield child, _role(_words(Path(f"/proc/{child}/cmdline")))


def _children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for thread in threads for word in _read(thread).split()]


def _words(path: Path) -> list[str]:
    return _read(path).split("\0")


def _read(path: Path) -> str:
    """A file of a process; empty when that is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _role(command_line: Sequence[str]) -> str:
    if any(word.startswith("pytest_ultrapar.broker") for word in command_line):
        return "broker"
    # execnet starts its workers with `python -u -c "import sys;exec(eval(sys.stdin.readline()))"`.
    return "worker" if "-c" in command_line else "other"


def _named(found: Sequence[tuple[str, float]]) -> Peaks:
    """Peaks by name, from (role, MiB) in the order in which the processes were started."""
    peaks: Peaks = {}
    n_workers = 0
    for role, mib in found:
        name = role
        if role == "worker":
            name = f"gw{n_workers}"
            n_workers += 1
        if role != "other":
            peaks[name] = max(mib, peaks.get(name, 0.0))
    return peaks


def peak_kib(pid: int) -> int:
    """The most memory that a process has held so far; 0 for one that has ended."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0
