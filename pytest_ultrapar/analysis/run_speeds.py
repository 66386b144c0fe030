"""The speed-ups in a benchmark file: for each run, over all its cases and over parts of them.

They are in the file's field `ultrapar`, which pytest-benchmark ignores, next to its own series.
They cannot be such a series, because figures over all suites depend on the selection of cases. A
run with another selection would not continue the series.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from pytest_ultrapar.analysis.statistics import BY_OWN_TIMES, Basis, RunStatistics
from pytest_ultrapar.pool.settings import MODES, Mode
from pytest_ultrapar.system.files import read_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


FILE_NAME = "benchmark.json"
_MOST_AT_ONCE = MODES[::-1]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Bound = Annotated[float, msgspec.Meta(ge=0)]


class PartSpeed(msgspec.Struct, frozen=True):
    """The speed of some cases of a run, as in `RunStatistics`.

    Attributes:
        suite: The suite's name; None for all suites.
        model: The model's name; None for all models.
        n: How many cases were completed.
        over: The mode of the run that measured the serial time, if `basis` is "full".
        n_serial: From how many cases the serial time was computed; None in files from earlier
            versions.
    """

    suite: str | None
    model: str | None
    n: _Count
    makespan_s: _Positive
    serial_s: _Positive
    speedup: _Positive
    speedup_interval: tuple[_Bound, _Bound] | None
    basis: Basis
    n_serial: int | None = None
    over: str = "serial"


def part_speed(suite: str | None, model: str | None, found: RunStatistics) -> PartSpeed | None:
    """Return the speed of a run, or of a part of it; None if no case was completed."""
    if found.makespan_s is None or found.serial_s is None or found.speedup is None:
        return None
    return PartSpeed(
        suite,
        model,
        found.n_timed,
        found.makespan_s,
        found.serial_s,
        found.speedup,
        found.speedup_interval,
        found.basis,
        found.sample.n if found.sample is not None else found.n_timed,
    )


class RunSpeeds(msgspec.Struct, frozen=True):
    """The speeds of one run in a benchmark file.

    Attributes:
        parts: The speeds of all cases, of each model, of each suite, and of each model in each
            suite. Parts without a completed case are left out.
        client_bound: How the client, and not the pool, limited the run; empty if it was not the
            client.
    """

    run_id: str
    mode: Mode
    simulated: bool
    parts: tuple[PartSpeed, ...]
    client_bound: str = ""

    def part(self, filters: Mapping[str, str]) -> PartSpeed | None:
        """Return the part for a `suite`, a `model`, both or neither; None if it has no figures."""
        wanted = filters.get("suite"), filters.get("model")
        return next((one for one in self.parts if (one.suite, one.model) == wanted), None)

    @property
    def over(self) -> str:
        """The mode of the run in which the serial time was measured; `serial` by default."""
        whole = self.part({})
        return whole.over if whole is not None else "serial"

    @property
    def basis(self) -> Basis | None:
        """Where the whole run's serial time comes from; None if no case was completed."""
        whole = self.part({})
        return whole.basis if whole is not None else None


class _Own(msgspec.Struct, frozen=True):
    runs: tuple[RunSpeeds, ...]


class _File(msgspec.Struct, frozen=True):
    ultrapar: _Own | None = None


def read_speeds(path: Path) -> tuple[RunSpeeds, ...]:
    """Read the runs in a benchmark file; empty if the file is missing or from another program.

    Raises:
        ResultsError: The file cannot be read, or is not a benchmark file of this version.
    """
    found = read_whole(path, _File, _File(), "is not a benchmark file of this version").ultrapar
    return () if found is None else found.runs


def judged_run(runs: Iterable[RunSpeeds]) -> RunSpeeds:
    """Return the run that represents a bench.

    It is the run whose mode allows the most requests in flight.

    Args:
        runs: One or more runs.
    """
    return min(runs, key=lambda run: _MOST_AT_ONCE.index(run.mode))


def not_measured(runs: Sequence[RunSpeeds], *, where: Path) -> str:
    """Explain why the runs have no speed-up to check: they were not compared with a serial run.

    Returns:
        The explanation; empty if a run was compared with a serial run.
    """
    modes = [run.mode for run in runs]
    if judged_run(runs).basis not in BY_OWN_TIMES and modes != ["serial"]:
        return ""
    return (
        f"{where} has no measured speed-up: this needs at least two modes, one of which runs one "
        f"case at a time, but the modes are {', '.join(modes)}. Run ultrapar bench with serial "
        "and another mode in --modes, or pass the directory of a run to use the run's own estimate"
    )
