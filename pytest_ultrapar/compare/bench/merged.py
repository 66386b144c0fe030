"""Merge the benchmark files of all modes into one file, with measured speed-ups."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.analysis.benchmark_json import CASE_LATENCY, in_scope
from pytest_ultrapar.analysis.journal_scan import JournalScan
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
    """The run in one mode. Each of its planned cases has a row in the results.

    Attributes:
        cases: The planned cases, by id.
        measures: The measures of its graded cases, by case id.
        columns: The measures in the same order, stored as columns.
        benchmark: The content of the benchmark file; None if no case was completed.
    """

    mode: str
    manifest: Manifest
    summary: RunSummary
    cases: dict[str, Case]
    measures: dict[str, CaseMeasure]
    columns: Measures
    benchmark: dict[str, Any] | None


def read_mode_run(directory: Path, summary: RunSummary) -> ModeRun:
    """Read a run that has ended, and whose journal still exists.

    Raises:
        ResultsError: A file of the run cannot be read.
    """
    manifest = read_manifest(directory)
    with closing(JournalScan(directory)) as taken:
        taken.read_new()
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
    """Find the run with which the speed of the others is compared.

    This is the run in mode `serial`. If mode `serial` did not run, it is the run in mode `rotate`,
    which also runs one case at a time.

    Returns:
        The run; None if both modes are missing, or if `rotate` is the only mode.
    """
    of_mode = {run.mode: run for run in runs}
    if set(of_mode) == {"rotate"}:
        return None
    return next((of_mode[mode] for mode in ONE_AT_A_TIME if mode in of_mode), None)


class Speedup(NamedTuple):
    """How much faster a run was than the serial run.

    Attributes:
        factor: The run's cases per second, divided by the serial run's.
        interval: The factor's confidence interval, as `speedup_interval` computes it, at 95 % or
            more. None if there are fewer than 3 cases.
        serial_s: How long the cases that the run completed would take one after another, in
            seconds.
        n_serial: How many cases the serial run completed.
    """

    factor: float
    interval: tuple[float, float] | None
    serial_s: float
    n_serial: int


def full_speedup(serial: ModeRun, other: ModeRun, chosen: Callable[[Kind], bool]) -> Speedup | None:
    """Compute the speed-up for the chosen cases; None if either run completed no chosen case.

    The two times of each case, one from each run, are used as a pair. So a case that takes long in
    both runs does not widen the interval.

    Args:
        serial: The serial run.
        other: The other run.
        chosen: Returns whether to include the cases of a kind.
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
    """Return for each case, by id, whether it was completed (0 or 1) and its share of makespan."""
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
"""The modes from which a serial run can be estimated, best first. The fewer requests in flight a
mode has, the better the estimate."""


def merged_benchmark(runs: Sequence[ModeRun]) -> dict[str, Any] | None:
    """Merge the entries of all modes into one file; None if no mode completed a case.

    If `base_run` finds a run, all speed-ups are relative to its mode: `basis` is "full", and `over`
    names the mode. The file then contains no estimate of a serial run. Otherwise it contains the
    estimate from one mode, and `estimated_from` names this mode.
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
    """Return the measured speed-ups, which replace the estimates, by suite and model."""
    measured: dict[Scope, dict[str, Any]] = {}
    for whole in file["ultrapar"]["runs"]:
        for each in whole["parts"]:
            part = each["suite"], each["model"]
            found = full_speedup(base, run, in_scope(part))
            if found is not None:
                measured[part] = {
                    "speedup": found.factor,
                    # The speed-up of a run over itself is exactly 1, so it has no interval.
                    "speedup_interval": found.interval if run is not base else None,
                    "serial_s": found.serial_s,
                    "basis": "full",
                    "over": base.mode,
                    "n_serial": found.n_serial,
                }
    return measured
