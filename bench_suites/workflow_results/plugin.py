"""Makes the phases' tables at the end of a pytest run that had cases of them.

The work is a process of its own: pytest's controller must not pay for pyarrow's memory, and a
failure there must not cost the run.
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
"""The tables, in the run's directory: a screen holds none of them."""
_TITLE = "## "
_TIMEOUT_S = 300
"""A hundred times what the full plan of 12,200 cases takes."""
# Inside a string of JSON the quotes would be escaped.
_SUITE = re.compile(rb'"suite":"phase5([1-5])"')


def pytest_configure(config: pytest.Config) -> None:
    """Wait for the end of the run."""
    config.pluginmanager.register(WorkflowResults(config), _NAME)


class WorkflowResults:
    """Makes the tables when the run is over, and says below its summary where they are."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lines: list[str] = []
        self._reused = _reused_run(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_ultrapar_finish(self, run: FinishedRun) -> None:
        """Write the aggregate and keep the tables. Controller, once, when results are written."""
        if run.summary is None:
            return
        if run.manifest.host is not None and not run.summary.statistics.n_final:
            # A host to which the others left no case.
            return
        try:
            phases = phases_in(run.directory)
            if phases:
                self._lines = _tables(run.directory, phases, self._reused)
        except (OSError, subprocess.SubprocessError, ResultsError) as error:
            self._lines = [f"no tables of the phases: {error}"]
        except KeyboardInterrupt:
            # The run is over and its results are written; whoever cannot wait for tables gets none.
            again = f"python -m {__package__} {run.directory}"
            self._lines = [f"no tables of the phases: interrupted; they are made with: {again}"]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show them. Controller, once, after the run's own summary."""
        if self._lines and self._config.option.verbose >= 0:
            terminalreporter.section("workflow phases")
            for line in self._lines:
                terminalreporter.write_line(line)


def phases_in(directory: Path) -> list[str]:
    """Numbers of the phases that asked or took cases in a run, sorted: `5.1`, `5.4`.

    The files are searched and not decoded: they may hold 20,000 cases, and the controller's memory
    is bounded.

    Raises:
        OSError: They cannot be read.
    """
    found = _search(directory / "cases.json")
    # A run whose suites took nothing has no such file.
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
            # Without it, `-m` would put the current directory first among the modules.
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
        return [f"no tables of the phases: {reason}; try again with: {again}"]
    from pytest_ultrapar.system.files import write_whole  # noqa: PLC0415 - msgspec, for few runs

    write_whole(directory / TABLES, done.stdout)
    told = done.stdout.decode("utf-8", "replace").splitlines()
    titles = [line.removeprefix(_TITLE) for line in told if line.startswith(_TITLE)]
    # The last line says which files hold the aggregate.
    return [*titles, f"tables in {directory / TABLES}", *told[-1:]]


def _reused_run(config: pytest.Config) -> Path | None:
    """The run of `--ultrapar-reuse`, looked up before this run becomes the latest one."""
    name = config.getoption("ultrapar_reuse", None)
    if not name:
        return None
    from pytest_ultrapar.errors import ConfigError  # noqa: PLC0415 - only for a run that reuses
    from pytest_ultrapar.store.run_directory import resolve_run  # noqa: PLC0415

    # Whoever declares the option refuses what it names; this only adds to the tables.
    with contextlib.suppress(ConfigError):
        return resolve_run(str(name))
    return None
