"""`benchmark.json` in pytest-benchmark's own schema, for its `compare` and for tools that read it.

Every entry is in seconds and smaller is better, since readers take `stats.mean` and `stats.ops` for
that; rates and scores stand in `extra_info`.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest_benchmark
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import get_commit_info

from pytest_ultrapar.results.serial_sample import serial_times
from pytest_ultrapar.results.statistics import run_statistics
from pytest_ultrapar.results.timeline import RESOLUTION_S, make_timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pytest_ultrapar.results.measure import CaseMeasure
    from pytest_ultrapar.results.performance import Performance

FILE_NAME = "benchmark.json"

Entry = dict[str, Any]

CASE_TIME = "seconds per case"
CASE_LATENCY = "case latency"
LATENCY_SUFFIX = "/latency"

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


@cache
def machine_info() -> dict[str, Any]:
    """pytest-benchmark's own description of this machine; 0.2 s, since it asks other programs."""
    info: dict[str, Any] = pytest_benchmark_generate_machine_info()  # type: ignore[no-untyped-call]
    return info


@cache
def commit_info() -> dict[str, Any]:
    """pytest-benchmark's own description of the commit found here; 0.04 s of asking git."""
    info: dict[str, Any] = get_commit_info()  # type: ignore[no-untyped-call]
    return info


def benchmark_json(
    measures: Sequence[CaseMeasure],
    *,
    n_planned: Mapping[tuple[str, str], int],
    mode: str,
    performance: Performance,
    simulated: bool,
    now: datetime,
) -> dict[str, Any] | None:
    """The whole file as plain values; None when no episode completed: a sample must not be empty.

    Entries: `<suite>[<mode>]` (all suites together by their names joined with `+`, then each),
    `<suite>[serial]` (its basis is a serial sample or an estimate, unless that is the mode),
    `<suite>[<mode>-<model>]`, `<suite>/latency[<mode>]`. None names a worker, a lane or a host, so
    that names stay comparable.

    Args:
        measures: One for each case with a final grade.
        n_planned: Planned cases by suite and model.
        mode: The mode that ran.
        performance: Of the run; bound, efficiency and limits stand in the entry of all its cases.
        simulated: Whether answers came from the simulated provider.
        now: Aware; when the file was made.
    """
    entries: list[Entry] = []
    suites = sorted({suite for suite, _ in n_planned})
    for part in [suites, *([suite] for suite in suites if len(suites) > 1)]:
        chosen = [each for each in measures if each.suite in part]
        planned = Counter({key: n for key, n in n_planned.items() if key[0] in part})
        entries.extend(_suite_entries("+".join(part), chosen, planned, mode))
    if not entries:
        return None
    entries[0]["extra_info"].update(_performance(performance))
    for entry in entries:
        entry["extra_info"]["simulated"] = simulated
    return {
        "machine_info": machine_info(),
        "commit_info": commit_info(),
        "benchmarks": entries,
        "datetime": now.isoformat(),
        "version": pytest_benchmark.__version__,
    }


def _suite_entries(
    suite: str,
    measures: Sequence[CaseMeasure],
    n_planned: Mapping[tuple[str, str], int],
    mode: str,
) -> Iterator[Entry]:
    timed = [each for each in measures if each.timed]
    if timed:
        yield _measured(suite, mode, None, measures, sum(n_planned.values()))
    if mode != "serial":
        yield from _alone(suite, measures, timed)
    if not timed:
        return
    for model in sorted({each.model for each in timed}):
        of_model = [each for each in measures if each.model == model]
        planned = sum(n for key, n in n_planned.items() if key[1] == model)
        yield _measured(suite, mode, model, of_model, planned)
    latencies_s = [max(each.duration_s, RESOLUTION_S) for each in timed]
    extra = {"n": len(latencies_s)}
    yield _entry(f"{suite}{LATENCY_SUFFIX}", mode, None, latencies_s, extra)


def _alone(
    suite: str, measures: Sequence[CaseMeasure], timed: Sequence[CaseMeasure]
) -> Iterator[Entry]:
    sampled_s = serial_times(measures)
    alone_s = [
        max(one_s, RESOLUTION_S) for one_s in sampled_s or [each.service_s for each in timed]
    ]
    if not alone_s:
        return
    serial_s = math.fsum(alone_s)
    extra = {
        "n": len(alone_s),
        "basis": "sampled" if sampled_s else "estimated",
        "makespan_s": serial_s,
        "throughput": len(alone_s) / serial_s,
    }
    yield _entry(suite, "serial", None, alone_s, extra)


def _measured(
    suite: str, mode: str, model: str | None, measures: Sequence[CaseMeasure], n_planned: int
) -> Entry:
    timeline = make_timeline(measures)
    assert timeline is not None
    statistics = run_statistics(measures, n_planned=n_planned, mode=mode)
    extra = {
        "n": statistics.n_timed,
        "n_planned": statistics.n_planned,
        "n_graded": statistics.n_graded,
        "coverage": statistics.coverage,
        "counts": statistics.counts,
        "makespan_s": statistics.makespan_s,
        "throughput": statistics.throughput,
        "serial_s": statistics.serial_s,
        "speedup": statistics.speedup,
        "speedup_interval": statistics.speedup_interval,
        "basis": statistics.basis,
        "n_attempts": statistics.n_attempts,
        "tokens_in": statistics.tokens_in,
        "tokens_out": statistics.tokens_out,
        "scores": {name: score.mean for name, score in statistics.scores.items()},
    }
    return _entry(suite, mode, model, timeline.gaps_s, extra)


def _performance(performance: Performance) -> dict[str, Any]:
    bound = performance.bound
    return {
        "bound_s": bound.seconds if bound is not None else None,
        "binding": bound.binding if bound is not None else None,
        "efficiency": performance.efficiency,
        "attribution": msgspec.to_builtins(performance.attribution),
        "peak_in_flight": performance.peak_in_flight,
        "limits": msgspec.to_builtins(performance.audit),
        "client_bound": performance.client_bound,
    }


def _entry(
    suite: str,
    mode: str,
    model: str | None,
    samples_s: Sequence[float],
    extra_info: dict[str, Any],
) -> Entry:
    stats = Stats()  # type: ignore[no-untyped-call]
    stats.data.extend(samples_s)
    param = mode if model is None else f"{mode}-{model}"
    name = f"{suite}[{param}]"
    return {
        "group": CASE_LATENCY if suite.endswith(LATENCY_SUFFIX) else CASE_TIME,
        "name": name,
        "fullname": name,
        "params": {"suite": suite, "mode": mode, "model": model},
        "param": param,
        "extra_info": extra_info,
        "options": _OPTIONS,
        "stats": {**stats.as_dict(), "data": stats.data, "iterations": 1},  # type: ignore[no-untyped-call]
    }
