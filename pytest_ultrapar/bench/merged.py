"""One benchmark file out of those of several modes, with speed-ups that were measured; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.bench.speedups import full_speedup
from pytest_ultrapar.results.benchmark_json import CASE_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.bench.mode_run import ModeRun
    from pytest_ultrapar.results.measure import CaseMeasure

SERIAL = "serial"
_ESTIMATED_FROM = ("rotate", "phase", "ultra")
"""Whose service times tell most of a serial run: those with the least in flight beside a case."""


def merged_benchmark(runs: Sequence[ModeRun]) -> dict[str, Any] | None:
    """The entries of all modes in one file; None when none completed a case.

    Where mode `serial` ran, its entries take the place of the estimates, and every other entry's
    speed-up is over it (`basis` "full"). Else the estimate of one mode stays, and says of which
    (`estimated_from`).
    """
    files = [(run, run.benchmark) for run in runs if run.benchmark is not None]
    if not files:
        return None
    serial = next((run for run, _ in files if run.mode == SERIAL), None)
    modes = [run.mode for run, _ in files]
    kept = next((mode for mode in _ESTIMATED_FROM if mode in modes), SERIAL)
    entries: list[dict[str, Any]] = []
    for run, file in files:
        for entry in file["benchmarks"]:
            is_estimate = run.mode != SERIAL and entry["params"]["mode"] == SERIAL
            if is_estimate and (serial is not None or run.mode != kept):
                continue
            extra = dict(entry["extra_info"])
            if is_estimate:
                extra["estimated_from"] = run.mode
            elif serial is not None and run is not serial and entry["group"] == CASE_TIME:
                extra |= _measured(serial, run, entry["params"])
            entries.append({**entry, "extra_info": extra})
    return {**files[-1][1], "benchmarks": entries}


def _measured(serial: ModeRun, run: ModeRun, params: Mapping[str, Any]) -> dict[str, Any]:
    suites = sorted({case.suite for case in run.cases.values()})
    named = suites if params["suite"] == "+".join(suites) else [params["suite"]]

    def chosen(measure: CaseMeasure) -> bool:
        return measure.suite in named and params["model"] in {None, measure.model}

    found = full_speedup(serial.measures, run.measures, chosen)
    if found is None:
        return {}
    return {
        "speedup": found.factor,
        "speedup_interval": found.interval,
        "serial_s": found.serial_s,
        "basis": "full",
    }
