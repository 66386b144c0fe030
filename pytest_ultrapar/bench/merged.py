"""One benchmark file out of those of several modes, with speed-ups that were measured; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.bench.speedups import SERIAL, full_speedup
from pytest_ultrapar.results.benchmark_json import CASE_TIME, is_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.bench.mode_run import ModeRun
    from pytest_ultrapar.bench.speedups import Speedup
    from pytest_ultrapar.results.benchmark_json import Part

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
    wholes: list[dict[str, Any]] = []
    for run, file in files:
        measured = _measured(serial, run, file)
        for entry in file["benchmarks"]:
            is_estimate = run.mode != SERIAL and entry["params"]["mode"] == SERIAL
            if is_estimate and (serial is not None or run.mode != kept):
                continue
            extra = dict(entry["extra_info"])
            if is_estimate:
                extra["estimated_from"] = run.mode
            elif entry["group"] == CASE_TIME:
                extra |= measured.get((entry["params"]["suite"], entry["params"]["model"]), {})
            entries.append({**entry, "extra_info": extra})
        for whole in file["ultrapar"]["runs"]:
            parts = [
                part | measured.get((part["suite"], part["model"]), {}) for part in whole["parts"]
            ]
            wholes.append({**whole, "parts": parts})
    return {**files[-1][1], "benchmarks": entries, "ultrapar": {"runs": wholes}}


def _measured(
    serial: ModeRun | None, run: ModeRun, file: Mapping[str, Any]
) -> dict[Part, dict[str, Any]]:
    """What takes the place of estimates, by suite and model."""
    if serial is None or serial is run:
        return {}
    measured: dict[Part, dict[str, Any]] = {}
    for whole in file["ultrapar"]["runs"]:
        for each in whole["parts"]:
            part = each["suite"], each["model"]
            found = _full(serial, run, part)
            if found is not None:
                measured[part] = {
                    "speedup": found.factor,
                    "speedup_interval": found.interval,
                    "serial_s": found.serial_s,
                    "basis": "full",
                    "n_serial": found.n_serial,
                }
    return measured


def _full(serial: ModeRun, run: ModeRun, part: Part) -> Speedup | None:
    return full_speedup(
        serial.measures,
        run.measures,
        lambda each: is_of(part, each.suite, each.model),
    )
