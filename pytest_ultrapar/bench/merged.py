"""One benchmark file out of those of several modes, with speed-ups that were measured; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.bench.speedups import base_run, full_speedup
from pytest_ultrapar.results.benchmark_json import CASE_LATENCY, is_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.bench.mode_run import ModeRun
    from pytest_ultrapar.bench.speedups import Speedup
    from pytest_ultrapar.results.benchmark_json import Part

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


def _measured(base: ModeRun, run: ModeRun, file: Mapping[str, Any]) -> dict[Part, dict[str, Any]]:
    """What takes the place of estimates, by suite and model."""
    measured: dict[Part, dict[str, Any]] = {}
    for whole in file["ultrapar"]["runs"]:
        for each in whole["parts"]:
            part = each["suite"], each["model"]
            found = _full(base, run, part)
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


def _full(base: ModeRun, run: ModeRun, part: Part) -> Speedup | None:
    return full_speedup(
        base.measures,
        run.measures,
        lambda each: is_of(part, each.suite, each.model),
    )
