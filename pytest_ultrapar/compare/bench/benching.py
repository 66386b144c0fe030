"""Runs the modes one after the other and makes the report of them."""

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


# -P: the `pytest` script does not put the current directory among the modules either.
_PYTEST = (sys.executable, "-P", "-m", "pytest", "-p", "pytest_ultrapar.session.whole_runs")
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_BY_SIGNAL = 128
"""Added to a signal's number, as shells do for the exit code of what it ended."""


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest, its output going where ours goes; returns its exit code.

    It is in a process group of its own, and signals that come to us are passed on to that group
    once: with Ctrl-C pytest ends in order (2), finished episodes are kept, and we go on to say so.
    In our own group it would get some signals twice, and its second one breaks off the end, too.
    Where we are killed, it gets the Ctrl-C that we cannot pass on.

    It is no `Child`, whose input and output belong to its parent: this one's belong to the user.
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
            preexec_fn=partial(  # noqa: PLW1509 - we have no threads
                _end_with, os.getpid(), ctypes.CDLL(None).prctl
            ),
        )
        for number in early:
            os.killpg(child.pid, number)
        code = child.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def _end_with(parent: int, prctl: Callable[[int, int], int]) -> None:
    """In the fork: have the kernel interrupt what it becomes when the parent is gone."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os._exit(_BY_SIGNAL + signal.SIGINT)


def check_pytest(arguments: Sequence[str], *, mode: str) -> tuple[int, str]:
    """Send nothing and show nothing; returns the exit code and what pytest said.

    Only the assignment of mode `phase` can be refused, and a plan makes it; in other modes
    collecting is enough, and takes half the time.
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
        run: What it left behind; None when planned cases have no row or it never got so far.
        said: What went wrong; empty where nothing did.
    """

    mode: str
    code: int
    run: ModeRun | None
    said: str


def bench(
    modes: Sequence[str], passed_on: Sequence[str], *, pool: str | None, out: Path | None
) -> int:
    """Run pytest in each mode and print the report.

    Beside the runs stand then the merged benchmark file and the report.

    Returns:
        pytest's worst exit code; modes after one that ended neither 0 nor 1 are left out. 4 when no
        case was completed in any mode.

    Raises:
        ConfigError: The directory cannot be used, or the modes ran other cases.
        ResultsError: What a run left behind cannot be read.
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
        _say("ultrapar bench: the suite has no cases: no test of it uses a prefetched fixture")
        return EXIT_UNUSABLE
    return finish(directory, ended, [*commands][len(ended) :])


def _was_begun(directory: Path) -> bool:
    return (directory / MANIFEST_FILE).exists()


def _discard_unused(directory: Path, modes: Sequence[str], *, is_ours: bool) -> None:
    """Remove what runs left that were refused, and our directory when nothing ran at all."""
    for mode in modes:
        if not _was_begun(directory / mode):
            shutil.rmtree(directory / mode, ignore_errors=True)
    if is_ours and not any(directory.iterdir()):
        directory.rmdir()


def _check(commands: dict[str, list[str]]) -> int:
    """Whether every mode could run: no hours of serial before a mode that is refused.

    A single mode, refused, says so itself.
    """
    if len(commands) == 1:
        return _PASSED
    for mode, command in commands.items():
        code, said = check_pytest(command, mode=mode)
        if code != _PASSED:
            _say(f"==== ultrapar bench: mode {mode} cannot run; nothing was sent ====")
            _say(said.rstrip())
            return code
    return _PASSED


def read_ended(mode: str, directory: Path, code: int) -> Ended:
    """What a mode that ended with that exit code left in its directory.

    Raises:
        ResultsError: It cannot be read.
    """
    summary = read_summary(directory)
    if summary is None:
        return Ended(mode, code, None, f"ended with exit code {code} and has no results")
    if summary.n_without_grade:
        n = summary.statistics.n_planned
        said = (
            f"stopped early (exit code {code}): {n - summary.n_without_grade} of "
            f"{counted(n, 'case')} have a result in {directory}; it is left out"
        )
        return Ended(mode, code, None, said)
    said = "" if code == _PASSED else f"ended with exit code {code}: see pytest's output above"
    return Ended(mode, code, read_mode_run(directory, summary), said)


def finish(directory: Path, ended: Sequence[Ended], missing: Sequence[str]) -> int:
    """Write and print what the modes that came to their end show; returns the exit code.

    Args:
        directory: Of the whole; exists.
        ended: At least one.
        missing: Modes that did not run, because one before them was stopped.

    Raises:
        ConfigError: The modes ran other cases.
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
        _say(*said, f"no case was completed in any finished mode; see {directory}")
        return worst if worst > _FAILED else EXIT_UNUSABLE
    write_whole(directory / BENCHMARK_FILE, msgspec.json.encode(benchmark))
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns)
    lines = [*report_lines(runs, width=width), *said]
    lines.append(f"in {directory}: {BENCHMARK_FILE}, {REPORT_FILE} and the run of each mode")
    write_whole(directory / REPORT_FILE, "".join(f"{line}\n" for line in lines).encode())
    _say(*lines)
    return worst


def _check_same_cases(runs: Sequence[ModeRun], directory: Path) -> None:
    for run in runs[1:]:
        if run.manifest.suite_digest != runs[0].manifest.suite_digest:
            refuse(
                f"{runs[0].mode} ran {counted(len(runs[0].cases), 'case')} and {run.mode} ran "
                f"others ({len(run.cases)}), so they cannot be compared: use options that select "
                f"the same cases in every mode; the runs are in {directory}"
            )


def _say(*lines: str) -> None:
    # At once: what pytest says goes to the same place.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
