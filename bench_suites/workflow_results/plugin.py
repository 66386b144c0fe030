"""Makes the tables of the phases at the end of a pytest run that contains their cases.

A separate process does the work, so that the controller does not need memory for pyarrow and a
failure does not affect the run.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from pytest_ultrapar.coordinator.finish import FinishedRun

_NAME = "bench_suites_workflow_results"
TABLES = "phases.md"
"""The file with the tables in the run's directory. The tables are too wide for a terminal."""
_TITLE = "## "
_TIMEOUT_S = 300
"""A hundred times as long as it takes to make the tables of the full plan (12,200 cases)."""
# The quotes are unescaped, so they are not inside a JSON string.
_SUITE = re.compile(rb'"suite":"phase5([1-5])"')


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that makes the tables at the end of the run."""
    config.pluginmanager.register(WorkflowResults(config), _NAME)


class WorkflowResults:
    """Makes the tables at the end of the run, and prints their path below its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lines: list[str] = []
        self._reused = _reused_run(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_ultrapar_finish(self, run: FinishedRun) -> None:
        """Write the tables and the aggregate. Runs once, in the controller, after the results."""
        if run.summary is None:
            return
        if run.manifest.host is not None and not run.summary.statistics.n_final:
            # A host in a cluster may have run no case.
            return
        try:
            phases = phases_in(run.directory)
            if phases:
                self._lines = _tables(run.directory, phases, self._reused)
        except (OSError, subprocess.SubprocessError, ResultsError) as error:
            self._lines = [f"cannot make the tables of the phases: {error}"]
        except KeyboardInterrupt:
            # The results are already written: an interrupt here only skips the tables.
            again = f"python -m {__package__} {run.directory}"
            self._lines = [f"the tables of the phases were interrupted; to make them, run {again}"]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the lines. Runs once, in the controller, after the run's own summary."""
        if self._lines and self._config.option.verbose >= 0:
            terminalreporter.section("workflow phases")
            for line in self._lines:
                terminalreporter.write_line(line)


def phases_in(directory: Path) -> list[str]:
    """The sorted numbers of the phases that ran or took cases in a run, such as `5.1`, `5.4`.

    The files are searched, not decoded: they may hold 20,000 cases, and the controller must use
    little memory.

    Raises:
        OSError: The files cannot be read.
    """
    found = _search(directory / "cases.json")
    # A run whose suites took no cases does not have this file.
    with contextlib.suppress(FileNotFoundError):
        found |= _search(directory / "taken.json")
    return sorted(found)


def _search(path: Path) -> set[str]:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return {f"5.{digit.decode()}" for digit in set(_SUITE.findall(content))}


def _tables(directory: Path, phases: list[str], reused: Path | None) -> list[str]:
    root = str(Path(__file__).parents[2])
    runs = [str(directory), *(["--reused", str(reused)] if reused is not None else [])]
    wanted = [word for phase in phases for word in ("--phase", phase)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", __package__, *runs, *wanted],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            # Without this, `-m` searches the current directory for modules first.
            "PYTHONSAFEPATH": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = (
            said[-1].removeprefix("workflow_results: ") if said else f"exit code {done.returncode}"
        )
        again = f"python -m {__package__} {' '.join(runs)}"
        return [f"cannot make the tables of the phases: {reason}; to try again, run {again}"]
    from pytest_ultrapar.system.files import write_whole  # noqa: PLC0415 - msgspec, for few runs

    write_whole(directory / TABLES, done.stdout)
    told = done.stdout.decode("utf-8", "replace").splitlines()
    titles = [line.removeprefix(_TITLE) for line in told if line.startswith(_TITLE)]
    # The last line names the files of the aggregate.
    return [*titles, f"tables in {directory / TABLES}", *told[-1:]]


def _reused_run(config: pytest.Config) -> Path | None:
    """The run of `--ultrapar-reuse`, resolved before this run becomes `latest`."""
    name = config.getoption("ultrapar_reuse", None)
    if not name:
        return None
    from pytest_ultrapar.errors import ConfigError  # noqa: PLC0415 - only for a run that reuses
    from pytest_ultrapar.store.run_directory import resolve_run  # noqa: PLC0415

    # The plugin that owns the option refuses an invalid run. Here the run only adds to the tables.
    with contextlib.suppress(ConfigError):
        return resolve_run(str(name))
    return None
