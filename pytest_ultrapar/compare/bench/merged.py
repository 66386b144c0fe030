"""One benchmark file of the modes of a bench, with speed-ups that were measured."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.analysis.benchmark_json import CASE_LATENCY, in_scope
from pytest_ultrapar.analysis.intake import Intake
from pytest_ultrapar.analysis.measures import CaseMeasure, Kind, Measures
from pytest_ultrapar.analysis.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.analysis.run_summary import RunSummary
from pytest_ultrapar.analysis.statistics import Part, part_time, speedup, speedup_interval
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.manifest import Manifest, read_manifest
from pytest_ultrapar.system.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.benchmark_json import Scope


@dataclass(frozen=True, slots=True)
class ModeRun:
    """A run of which every planned case has a row.

    Attributes:
        cases: Planned ones, by id.
        measures: Of the graded ones, by case id.
        columns: The same, in their order.
        benchmark: Its benchmark file; None when no case was completed.
    """

    mode: str
    manifest: Manifest
    summary: RunSummary
    cases: dict[str, Case]
    measures: dict[str, CaseMeasure]
    columns: Measures
    benchmark: dict[str, Any] | None


def read_mode_run(directory: Path, summary: RunSummary) -> ModeRun:
    """All of a run: it came to its end, and its journal is there.

    Raises:
        ResultsError: A file of it cannot be read.
    """
    manifest = read_manifest(directory)
    with closing(Intake(directory)) as taken:
        taken.take_up()
        taken.leave_out_others()
        ended, columns = taken.ended(), Measures()
        taken.figures(ended, taken.tables.spent(ended), columns)
    case_ids = [one.grade.case_id for one in ended if one.grade is not None]
    measures = dict(zip(case_ids, columns.each(case_ids), strict=True))
    path = directory / BENCHMARK_FILE
    return ModeRun(
        mode=manifest.mode,
        manifest=manifest,
        summary=summary,
        cases={case.case_id: case for case in taken.cases},
        measures=measures,
        columns=columns,
        benchmark=msgspec.json.decode(read_file(path)) if path.exists() else None,
    )


def base_run(runs: Sequence[ModeRun]) -> ModeRun | None:
    """The run that others are measured against: `serial`, else `rotate`, one case at a time too.

    Returns:
        None where neither is among them, or `rotate` has nothing beside it.
    """
    of_mode = {run.mode: run for run in runs}
    if set(of_mode) == {"rotate"}:
        return None
    return next((of_mode[mode] for mode in ONE_AT_A_TIME if mode in of_mode), None)


class Speedup(NamedTuple):
    """How much faster a run was than the serial one.

    Attributes:
        factor: Cases per second over those of the serial run.
        interval: At least 95 %, as `speedup_interval` has it; None with fewer than 3 cases.
        serial_s: What the run's completed cases took one after the other.
        n_serial: Cases that the serial run completed.
    """

    factor: float
    interval: tuple[float, float] | None
    serial_s: float
    n_serial: int


def full_speedup(serial: ModeRun, other: ModeRun, chosen: Callable[[Kind], bool]) -> Speedup | None:
    """The speed-up of some cases; None when one of the runs completed none of them.

    A case stands for its time in both runs, so that one that takes long takes long in both: drawn
    together, such cases do not widen the interval.

    Args:
        serial: The serial run.
        other: The other one.
        chosen: Which cases.
    """
    slow, fast = _shares(serial, chosen), _shares(other, chosen)
    nothing = (0, 0.0)
    parts = [
        Part(*slow.get(case_id, nothing), *fast.get(case_id, nothing))
        for case_id in {**slow, **fast}
    ]
    factor = speedup(parts)
    if factor is None:
        return None
    n_slow, n_fast = sum(part.n_slow for part in parts), sum(part.n_fast for part in parts)
    return Speedup(
        factor,
        speedup_interval([parts]),
        n_fast * sum(part.slow_s for part in parts) / n_slow,
        n_slow,
    )


def _shares(run: ModeRun, chosen: Callable[[Kind], bool]) -> dict[str, tuple[int, float]]:
    """By case id, whether it was completed (0 or 1), and its seconds of the makespan."""
    took = part_time(run.columns, chosen)
    if took is None:
        return {}
    measures = [*run.measures.values()]
    found = {}
    for number, share_s in zip(took.measures["number"], took.shares_s, strict=True):
        one = measures[number]
        found[one.case_id] = int(one.timed), share_s
    return found


_SERIAL = "serial"
_ESTIMATED_FROM = ("rotate", "phase", "ultra")
"""Whose service times tell most of a serial run: those with the least in flight beside a case."""


def merged_benchmark(runs: Sequence[ModeRun]) -> dict[str, Any] | None:
    """The entries of all modes in one file; None when none completed a case.

    Where mode `serial` ran, or else `rotate`, every speed-up is over that (`basis` "full", `over`)
    and no estimate of a serial run stays. Else the estimate of one mode stays, and says of which
    (`estimated_from`).
    """
    files = [(run, run.benchmark) for run in runs if run.benchmark is not None]
    if not files:
        return None
    base = base_run([run for run, _ in files])
    modes = [run.mode for run, _ in files]
    kept = next((mode for mode in _ESTIMATED_FROM if mode in modes), _SERIAL)
    entries: list[dict[str, Any]] = []
    wholes: list[dict[str, Any]] = []
    for run, file in files:
        measured = _measured(base, run, file) if base is not None else {}
        for entry in file["benchmarks"]:
            params = entry["params"]
            is_estimate = run.mode != _SERIAL and params["mode"] == _SERIAL
            if is_estimate and (base is not None or run.mode != kept):
                continue
            extra = dict(entry["extra_info"])
            if is_estimate:
                extra["estimated_from"] = run.mode
            elif entry["group"] != CASE_LATENCY:
                extra |= measured.get((params["suite"], params["model"]), {})
            entries.append({**entry, "extra_info": extra})
        for whole in file["ultrapar"]["runs"]:
            parts = [
                part | measured.get((part["suite"], part["model"]), {}) for part in whole["parts"]
            ]
            wholes.append({**whole, "parts": parts})
    return {**files[-1][1], "benchmarks": entries, "ultrapar": {"runs": wholes}}


def _measured(base: ModeRun, run: ModeRun, file: Mapping[str, Any]) -> dict[Scope, dict[str, Any]]:
    """What takes the place of estimates, by suite and model."""
    measured: dict[Scope, dict[str, Any]] = {}
    for whole in file["ultrapar"]["runs"]:
        for each in whole["parts"]:
            part = each["suite"], each["model"]
            found = full_speedup(base, run, in_scope(part))
            if found is not None:
                measured[part] = {
                    "speedup": found.factor,
                    # It cannot differ from itself.
                    "speedup_interval": found.interval if run is not base else None,
                    "serial_s": found.serial_s,
                    "basis": "full",
                    "over": base.mode,
                    "n_serial": found.n_serial,
                }
    return measured
