"""Run the modes one after another, and write the report."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.compare.bench.arguments import pytest_arguments
from pytest_ultrapar.compare.bench.merged import ModeRun, merged_benchmark, read_mode_run
from pytest_ultrapar.compare.bench.report import report_lines
from pytest_ultrapar.errors import EXIT_UNUSABLE, refuse
from pytest_ultrapar.report.text import counted
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_FILE
from pytest_ultrapar.store.run_directory import new_directory
from pytest_ultrapar.system.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType


# With -P, the current directory is not in `sys.path`. The same applies if you use the script
# `pytest`.
_PYTEST = (sys.executable, "-P", "-m", "pytest", "-p", "pytest_ultrapar.session.bench_runs")
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_BY_SIGNAL = 128
"""If a signal ended pytest, the exit code is this plus the number of the signal, as in a shell."""


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest with the same standard output and error as this process; return the exit code.

    pytest runs in its own process group, and this process passes each signal on to that group once.
    After Ctrl-C, pytest stores finished episodes and ends normally with exit code 2, and this
    process then reports the result. If pytest were in the same group as this process, it would
    receive some signals twice, and the second signal would interrupt its shutdown. If this process
    is killed, the kernel sends SIGINT to pytest.

    This function does not use `Child`, because the input and output of a `Child` are connected to
    its parent. Here, the output must go to the user.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)

    with _handled(forward):
        child = subprocess.Popen(  # noqa: S603
            [*_PYTEST, *arguments],
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=partial(  # noqa: PLW1509 - this process has no threads
                _end_with, os.getpid(), ctypes.CDLL(None).prctl
            ),
        )
        for number in early:
            os.killpg(child.pid, number)
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def _end_with(parent: int, prctl: Callable[[int, int], int]) -> None:
    """Ask the kernel for SIGINT when the parent ends. The forked process calls this for itself."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os._exit(_BY_SIGNAL + signal.SIGINT)


def check_pytest(arguments: Sequence[str], *, mode: str) -> tuple[int, str]:
    """Check, without sending a request, that pytest accepts the arguments.

    In mode `phase`, pytest makes a plan, because only a plan makes the assignment, and only in this
    mode can the assignment be refused. In other modes, it is enough to collect the tests, which
    takes half as long.

    Returns:
        The exit code and the output of pytest.
    """
    looks = "--ultrapar-plan" if mode == "phase" else "--collect-only"
    done = subprocess.run(  # noqa: S603
        [*_PYTEST, *arguments, looks, "-q"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


@contextmanager
def _handled(handler: signal._HANDLER) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


REPORT_FILE = "report.txt"
_PASSED, _FAILED = 0, 1
_LEAST_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Ended:
    """How pytest ended in one mode.

    Attributes:
        run: The run of this mode. None if any planned case has no row in the results, or if the run
            never started.
        said: An error message for the user; empty if there was no error.
    """

    mode: str
    code: int
    run: ModeRun | None
    said: str


def bench(
    modes: Sequence[str], passed_on: Sequence[str], *, pool: str | None, out: Path | None
) -> int:
    """Run pytest in each mode, and print the report.

    The merged benchmark file and the report are written next to the directories of the runs. If a
    mode ends with an exit code other than 0 or 1, the modes after it do not run.

    Returns:
        pytest's worst exit code. If this is 0 or 1 but no mode completed a case: 4.

    Raises:
        ConfigError: The directory cannot be used, or not all modes ran the same cases.
        ResultsError: A file in a run's directory cannot be read, or the report cannot be written.
    """
    commands = {mode: pytest_arguments(passed_on, mode=mode, pool=pool) for mode in modes}
    directory = new_directory(out, datetime.now(UTC))
    try:
        return _run_all(directory, commands)
    finally:
        _discard_unused(directory, modes, is_ours=out is None)


def _run_all(directory: Path, commands: dict[str, list[str]]) -> int:
    code = _check(commands)
    if code != _PASSED:
        return code
    ended: list[Ended] = []
    for mode, command in commands.items():
        _say(f"==== ultrapar bench: mode {mode} ({len(ended) + 1} of {len(commands)}) ====")
        code = run_pytest([*command, f"--ultrapar-out={directory / mode}"])
        ended.append(read_ended(mode, directory / mode, code))
        if code not in {_PASSED, _FAILED}:
            break
    if not any(_was_begun(directory / mode) for mode in commands):
        if code not in {_PASSED, _FAILED}:
            return code
        _say("ultrapar bench: no cases: no selected test takes llm or uses a prefetched fixture")
        return EXIT_UNUSABLE
    return finish(directory, ended, [*commands][len(ended) :])


def _was_begun(directory: Path) -> bool:
    return (directory / MANIFEST_FILE).exists()


def _discard_unused(directory: Path, modes: Sequence[str], *, is_ours: bool) -> None:
    """Remove directories of runs that never began.

    Also remove `directory` if this command named it (`is_ours`) and it is now empty.
    """
    for mode in modes:
        if not _was_begun(directory / mode):
            shutil.rmtree(directory / mode, ignore_errors=True)
    if is_ours and not any(directory.iterdir()):
        directory.rmdir()


def _check(commands: dict[str, list[str]]) -> int:
    """Check every mode first, so that no mode is refused after mode `serial` has run for hours.

    If there is only one mode, nothing is checked, because pytest itself reports errors.
    """
    if len(commands) == 1:
        return _PASSED
    for mode, command in commands.items():
        code, said = check_pytest(command, mode=mode)
        if code != _PASSED:
            _say(f"==== ultrapar bench: mode {mode} cannot run; no request was sent ====")
            _say(said.rstrip())
            return code
    return _PASSED


def read_ended(mode: str, directory: Path, code: int) -> Ended:
    """Read a mode's directory after pytest has ended with exit code `code` in this mode.

    Raises:
        ResultsError: A file cannot be read.
    """
    summary = read_summary(directory)
    if summary is None:
        return Ended(mode, code, None, f"ended with exit code {code} and has no results")
    if summary.n_without_grade:
        n = summary.statistics.n_planned
        said = (
            f"stopped early (exit code {code}): {n - summary.n_without_grade} of "
            f"{counted(n, 'case')} have a result in {directory}; the report leaves this mode out"
        )
        return Ended(mode, code, None, said)
    said = "" if code == _PASSED else f"ended with exit code {code}: see pytest's output above"
    return Ended(mode, code, read_mode_run(directory, summary), said)


def finish(directory: Path, ended: Sequence[Ended], missing: Sequence[str]) -> int:
    """Write and print the report on the modes that have ended; return the exit code.

    Args:
        directory: The directory that contains the directories of all modes. It must exist.
        ended: How each mode ended. At least one mode must have run.
        missing: The modes that did not run because an earlier mode was stopped.

    Raises:
        ConfigError: Not all modes ran the same cases.
        ResultsError: A file cannot be written.
    """
    runs = [one.run for one in ended if one.run is not None]
    _check_same_cases(runs, directory)
    said = [f"{one.mode} {one.said}" for one in ended if one.said]
    said += [f"{mode} did not run" for mode in missing]
    _say("==== ultrapar bench ====")
    benchmark = merged_benchmark(runs)
    worst = max(one.code for one in ended)
    if benchmark is None:
        _say(*said, f"no finished mode completed a case; see {directory}")
        return worst if worst > _FAILED else EXIT_UNUSABLE
    write_whole(directory / BENCHMARK_FILE, msgspec.json.encode(benchmark))
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns)
    lines = [*report_lines(runs, width=width), *said]
    lines.append(f"in {directory}: {BENCHMARK_FILE}, {REPORT_FILE} and each mode's run")
    write_whole(directory / REPORT_FILE, "".join(f"{line}\n" for line in lines).encode())
    _say(*lines)
    return worst


def _check_same_cases(runs: Sequence[ModeRun], directory: Path) -> None:
    for run in runs[1:]:
        if run.manifest.suite_digest != runs[0].manifest.suite_digest:
            refuse(
                f"{runs[0].mode} ran {counted(len(runs[0].cases), 'case')} and {run.mode} ran "
                f"different ones ({len(run.cases)}), so the modes cannot be compared: select "
                f"the same cases in every mode; the runs are in {directory}"
            )


def _say(*lines: str) -> None:
    # Flush before pytest starts, because it writes to the same file.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
