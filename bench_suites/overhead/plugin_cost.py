"""What the plugin costs where it has nothing to do: no pool, an empty folder."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import Cost, pytest_start, run_timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_suites.overhead.environment import Environment

MOST_MS = 10.0
"""So much longer may `pytest --collect-only` take with the plugin installed."""

_NOTHING_COLLECTED = 5
_COLLECT = "--collect-only"
_BLOCKED = ("-p", "no:ultrapar")


class PluginCost(msgspec.Struct, frozen=True):
    """`pytest --collect-only` of an empty folder, without and with this plugin, in milliseconds.

    Attributes:
        n: Runs of each, in turn.
        without_ms: Median of the whole command.
        more_ms: Median of the differences between a run with the plugin and the run before it.
        more_cpu_ms: The same for user and system time, which a busy machine disturbs less.
        modules: What is imported with the plugin only.
    """

    n: int
    without_ms: float
    with_ms: float
    more_ms: float
    more_cpu_ms: float
    modules: list[str]


def measure_plugin_cost(
    n_runs: int, *, environment: Environment, note: Callable[[str], object]
) -> PluginCost:
    """Collect nothing many times, in turn with the plugin blocked and with it loaded.

    Args:
        n_runs: Of each, >= 1.
        environment: See `environment.measured_environment`.
        note: Called with a line before it begins.

    Raises:
        CommandError: pytest did anything but collect nothing.
    """
    note(f"imports: {n_runs} runs without and with the plugin")
    with tempfile.TemporaryDirectory(prefix="overhead-") as empty:
        folder = Path(empty)
        modules = _imported(folder, (), environment) - _imported(folder, _BLOCKED, environment)
        pairs = [
            (_collect(folder, _BLOCKED, environment), _collect(folder, (), environment))
            for _ in range(n_runs)
        ]
    return PluginCost(
        n=n_runs,
        without_ms=1000 * statistics.median(without.wall_s for without, _ in pairs),
        with_ms=1000 * statistics.median(loaded.wall_s for _, loaded in pairs),
        more_ms=1000 * statistics.median(b.wall_s - a.wall_s for a, b in pairs),
        more_cpu_ms=1000 * statistics.median(b.cpu_s - a.cpu_s for a, b in pairs),
        modules=sorted(modules),
    )


def _collect(folder: Path, more: Sequence[str], environment: Environment) -> Cost:
    argv = [*pytest_start(), _COLLECT, *more]
    return run_timed(argv, environment, folder=folder, expected=_NOTHING_COLLECTED)


def _imported(folder: Path, more: Sequence[str], environment: Environment) -> set[str]:
    """The names of all modules that such a run imports, by Python's own account."""
    said = subprocess.run(  # noqa: S603 - our own interpreter, no shell
        [sys.executable, "-X", "importtime", *pytest_start()[1:], _COLLECT, *more],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    lines = [line for line in said.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}
