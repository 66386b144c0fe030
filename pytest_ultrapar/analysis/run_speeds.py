"""What a benchmark file says of whole runs: their speed-ups, of all cases and of parts of them.

It stands beside the series, under the key `ultrapar`, where pytest-benchmark does not look: the
figures of all suites together are those of one selection, and no series that could go on with
another one.
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
    """How fast some cases of a run were, as `RunStatistics` has it.

    Attributes:
        suite: None for all suites.
        model: None for all models.
        n: Completed cases.
        over: Mode of the run that took the serial time, where one did (`basis` "full").
        n_serial: Those that the serial time stands on; None in files of earlier versions.
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
    """What a run's statistics say of it or of a part of it; None where nothing was completed."""
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
    """One run of a benchmark file.

    Attributes:
        parts: All cases, those of each model, of each suite, and of each model in each suite; those
            of which none was completed are left out.
        client_bound: Why the client was what held the run up; empty if it was not.
    """

    run_id: str
    mode: Mode
    simulated: bool
    parts: tuple[PartSpeed, ...]
    client_bound: str = ""

    def part(self, filters: Mapping[str, str]) -> PartSpeed | None:
        """Those of a `suite`, a `model`, both or neither; None where none was completed."""
        wanted = filters.get("suite"), filters.get("model")
        return next((one for one in self.parts if (one.suite, one.model) == wanted), None)

    @property
    def over(self) -> str:
        """Mode of the run that took the serial time, where one did."""
        whole = self.part({})
        return whole.over if whole is not None else "serial"

    @property
    def basis(self) -> Basis | None:
        """Where the serial time of all its cases comes from; None where none was completed."""
        whole = self.part({})
        return whole.basis if whole is not None else None


class _Own(msgspec.Struct, frozen=True):
    runs: tuple[RunSpeeds, ...]


class _File(msgspec.Struct, frozen=True):
    ultrapar: _Own | None = None


def read_speeds(path: Path) -> tuple[RunSpeeds, ...]:
    """The runs of a benchmark file; none where there is no file, or it is another program's.

    Raises:
        ResultsError: It cannot be read, or is not a benchmark file of this version.
    """
    found = read_whole(path, _File, _File(), "is not a benchmark file of this version").ultrapar
    return () if found is None else found.runs


def judged_run(runs: Iterable[RunSpeeds]) -> RunSpeeds:
    """Which of a bench's runs is meant where the bench is named: the one with most under way.

    Args:
        runs: At least one.
    """
    return min(runs, key=lambda run: _MOST_AT_ONCE.index(run.mode))


def not_measured(runs: Sequence[RunSpeeds], *, where: Path) -> str:
    """Why a speed-up cannot be judged, where none of these runs was compared with a serial one.

    Returns:
        A sentence; empty if one was.
    """
    modes = [run.mode for run in runs]
    if judged_run(runs).basis not in BY_OWN_TIMES and modes != ["serial"]:
        return ""
    return (
        f"{where} has no measured speed-up: it needs a mode with one case under way at a time and "
        f"another one, and its modes are {', '.join(modes)}; run ultrapar bench with serial and "
        "another mode among --modes, or name the directory of a run to judge by its own estimate"
    )
