"""Plans compared with runs: how far `--ultrapar-plan` is from what then happens."""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead.command import CommandError, pytest_start
from bench_suites.overhead.situations import SITUATIONS
from bench_suites.overhead.workload import ROOT
from pytest_ultrapar.testing import read_server_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_suites.overhead.environment import Environment
    from bench_suites.overhead.situations import Situation

MOST_MEDIAN, MOST_WORST = 0.10, 0.20
"""Aims for the error over all situations."""

_SHOWN_CHARACTERS = 2000


class Forecasted(msgspec.Struct, frozen=True):
    """One plan and the run that followed it.

    Attributes:
        basis: What the plan stood on: `pool`, or the mode of the earlier run.
        n: Requests of the run.
        predicted_s: Time of the run's mode in the plan.
        measured_s: First arrival to last reply, by the server's log.
    """

    name: str
    mode: str
    basis: str
    n: int
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Predicted / measured."""
        return self.predicted_s / self.measured_s


def measure_forecasts(
    situations: Sequence[Situation] = SITUATIONS,
    *,
    environment: Environment,
    note: Callable[[str], object],
) -> list[Forecasted]:
    """Plan and run every situation.

    Args:
        situations: Which ones.
        environment: See `environment.measured_environment`.
        note: Called with a line before each situation.

    Raises:
        CommandError: A command ended badly, or its plan has no time for the mode.
    """
    found = []
    for one in situations:
        note(f"forecast: {one.name}")
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
            found.append(_compare(one, Path(folder), environment))
    return found


def errors(forecasts: Sequence[Forecasted]) -> tuple[float, float]:
    """The median and the largest error, as shares of what was measured."""
    own = [abs(one.ratio - 1) for one in forecasts]
    return statistics.median(own), max(own)


def _compare(one: Situation, folder: Path, environment: Environment) -> Forecasted:
    (folder / "pool.toml").write_text(one.pool, encoding="utf-8")
    basis = "none"
    if one.earlier_mode is not None:
        basis = str(folder / "earlier")
        _run(one, one.earlier_mode, folder, environment, f"--ultrapar-out={basis}")
    plan = _run(
        one, one.mode, folder, environment, "--ultrapar-plan", f"--ultrapar-plan-from={basis}"
    )
    row = re.search(rf"^{one.mode} <- +\S+ +([\d.]+) s ", plan, re.MULTILINE)
    if row is None:
        msg = f"{one.name}: the plan has no time for mode {one.mode}\n{plan}"
        raise CommandError(msg)
    _run(one, one.mode, folder, environment, f"--ultrapar-out={folder / 'run'}")
    log = read_server_log(folder / "run" / "simulator.jsonl")
    return Forecasted(
        one.name,
        one.mode,
        "pool" if one.earlier_mode is None else f"earlier run ({one.earlier_mode})",
        len(log.requests),
        float(row[1]),
        log.phase_s,
    )


def _run(one: Situation, mode: str, folder: Path, environment: Environment, *options: str) -> str:
    argv = [
        *pytest_start(),
        f"-n{one.n_processes}",
        *one.cases,
        f"--ultrapar-pool={folder / 'pool.toml'}",
        f"--ultrapar-mode={mode}",
        *options,
    ]
    done = subprocess.run(  # noqa: S603 - our own interpreter and modules, no shell
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-_SHOWN_CHARACTERS:]
        msg = f"exit code {done.returncode} of {' '.join(argv)}\n{said}"
        raise CommandError(msg)
    return done.stdout
