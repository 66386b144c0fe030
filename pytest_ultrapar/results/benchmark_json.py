"""`benchmark.json` in pytest-benchmark's own schema, for its `compare` and for tools that read it.

Every entry is in seconds and smaller is better, since readers take `stats.mean` and `stats.ops` for that;
rates and scores stand in `extra_info`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest_benchmark
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.utils import get_commit_info

from pytest_ultrapar.results.statistics import run_statistics
from pytest_ultrapar.results.timeline import RESOLUTION_S, make_timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pytest_ultrapar.results.measure import CaseMeasure

FILE_NAME = "benchmark.json"

Entry = dict[str, Any]

CASE_TIME = "seconds per case"
CASE_LATENCY = "case latency"

_OPTIONS = {
    "disable_gc": False,
    "timer": "monotonic",
    "min_rounds": 1,
    "max_time": 0.0,
    "min_time": 0.0,
    "precision": None,
    "confidence": None,
    "warmup": False,
}


def machine_info() -> dict[str, Any]:
    """pytest-benchmark's own description of this machine; 0.2 s, since it asks other programs."""
    info: dict[str, Any] = pytest_benchmark_generate_machine_info()
    return info


def benchmark_json(
    measures: Sequence[CaseMeasure],
    *,
    n_planned: dict[str, int],
    mode: str,
    simulated: bool,
    machine: dict[str, Any],
    now: datetime,
) -> dict[str, Any] | None:
    """The whole file as plain values; None when no episode completed, since a sample must not be empty.

    Entries: `<suite>[<mode>]` (over all suites together their names joined by `+`, then each),
    `<suite>[serial]` unless that is the mode, `<suite>[<mode>-<model>]`, `<suite>/latency[<mode>]`. None
    names a worker, a lane or a host, so names stay comparable.

    Args:
        measures: One for each case with a final grade.
        n_planned: Planned cases by suite.
        mode: The mode that ran.
        simulated: Whether answers came from the simulated provider.
        machine: What `machine_info` returned.
        now: Aware; when the file was made.
    """
    entries = [
        entry
        for suite, part, planned in _suites(measures, n_planned)
        for entry in _suite_entries(suite, part, planned, mode, simulated=simulated)
    ]
    if not entries:
        return None
    return {
        "machine_info": machine,
        "commit_info": get_commit_info(),
        "benchmarks": entries,
        "datetime": now.isoformat(),
        "version": pytest_benchmark.__version__,
    }


def _suites(
    measures: Sequence[CaseMeasure], n_planned: dict[str, int]
) -> Iterator[tuple[str, Sequence[CaseMeasure], int]]:
    names = sorted(n_planned)
    yield "+".join(names), measures, sum(n_planned.values())
    if len(names) > 1:
        for name in names:
            yield name, [each for each in measures if each.suite == name], n_planned[name]


def _suite_entries(
    suite: str, measures: Sequence[CaseMeasure], n_planned: int, mode: str, *, simulated: bool
) -> Iterator[Entry]:
    timeline = make_timeline(measures)
    if timeline is None:
        return
    statistics = run_statistics(measures, n_planned=n_planned, mode=mode)
    timed = [each for each in measures if each.completed and each.span is not None]
    extra = {**_extra(statistics), "simulated": simulated}
    yield _entry(suite, mode, None, CASE_TIME, timeline.gaps_s, extra)
    if mode != "serial":
        services = [max(each.service_s, RESOLUTION_S) for each in timed]
        alone = {
            "n": len(services),
            "basis": statistics.basis,
            "makespan_s": math.fsum(services),
            "throughput": len(services) / math.fsum(services),
            "simulated": simulated,
        }
        yield _entry(suite, "serial", None, CASE_TIME, services, alone)
    models = sorted({each.model for each in timed})
    for model in models:
        part = [each for each in measures if each.model == model]
        of_model = make_timeline(part)
        if of_model is not None:
            yield _entry(
                suite, mode, model, CASE_TIME, of_model.gaps_s, _model_extra(part, simulated)
            )
    latencies = [max(each.duration_s, RESOLUTION_S) for each in timed]
    of_latency = {"n": len(latencies), "simulated": simulated}
    yield _entry(f"{suite}/latency", mode, None, CASE_LATENCY, latencies, of_latency)
