"""Make the content of `benchmark.json`, in pytest-benchmark's own schema."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest_benchmark
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import get_commit_info

from pytest_ultrapar.analysis.repetitions import figures_of_cells, n_repetitions
from pytest_ultrapar.analysis.run_speeds import part_speed
from pytest_ultrapar.analysis.run_summary import cell_figure
from pytest_ultrapar.analysis.statistics import RESOLUTION_S, RunStatistics, run_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pytest_ultrapar.analysis.measures import Kind, Measures
    from pytest_ultrapar.analysis.performance import Performance
    from pytest_ultrapar.store.manifest import Manifest


Entry = dict[str, Any]
Scope = tuple[str | None, str | None]
"""A suite and a model; None means all suites, or all models."""
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
    """Return pytest-benchmark's description of this machine; this runs programs that take 0.2 s."""
    info: dict[str, Any] = pytest_benchmark_generate_machine_info()  # type: ignore[no-untyped-call]
    return info


@cache
def commit_info() -> dict[str, Any]:
    """Return pytest-benchmark's description of the current commit; this runs git for 0.04 s."""
    info: dict[str, Any] = get_commit_info()  # type: ignore[no-untyped-call]
    return info


def benchmark_json(
    measures: Measures,
    manifest: Manifest,
    *,
    n_planned: Mapping[tuple[str, str], int],
    statistics: RunStatistics,
    performance: Performance,
    now: datetime,
) -> dict[str, Any] | None:
    """Return the content of the file as plain values, or None if no episode was completed.

    Without a completed episode there is no file, because pytest-benchmark does not allow empty
    samples. The entries are `<suite>[<mode>]`, `<suite>[<mode>-<model>]` and
    `<suite>/latency[<mode>]`. In modes other than serial, there are also `<suite>[serial]` and
    `<suite>[serial-<model>]`. Their times come from a serial sample, or else are the sum of the
    run's own service times. The names do not depend on workers, lanes or hosts, or on which other
    cases are selected. So entries from different runs can be compared. Except for latencies, each
    entry has one round, and its value is the number of seconds per case. So you can divide the
    values of two entries to compare their rates.

    The figures of the whole run are in the field `ultrapar`, which `run_speeds` reads. If the run
    has only one suite, they are also in the entry for all cases of that suite.

    Args:
        measures: The measures of the cases with a final grade.
        manifest: The run's manifest.
        n_planned: The number of planned cases by suite and model.
        statistics: The statistics of all cases.
        performance: The run's performance.
        now: The time to record in the file, with a time zone.
    """
    mode = manifest.mode
    suites, models = (sorted({key[place] for key in n_planned}) for place in (0, 1))
    found: dict[Scope, RunStatistics] = {}
    for scope in [(suite, model) for suite in (*suites, None) for model in (None, *models)]:
        n = sum(n for key, n in n_planned.items() if is_of(scope, *key))
        alike = (suites[0], scope[1]) if len(suites) == 1 else scope
        if n == statistics.n_planned:
            found[scope] = statistics
        else:
            found[scope] = found.get(alike) or run_statistics(
                measures, n_planned=n, mode=mode, alone=performance.alone, chosen=in_scope(scope)
            )
    entries: list[Entry] = []
    for suite in suites:
        for model in (None, *models):
            own = measures.of(measures.told(in_scope((suite, model))))
            more = _repetitions(own) | _cost(found[suite, model], manifest.currency)
            entries.extend(_entries(suite, mode, model, found[suite, model], more))
        own = measures.of(measures.timed & measures.told(in_scope((suite, None))))
        latencies_s = [max(each_s, RESOLUTION_S) for each_s in own["duration_s"].tolist()]
        if latencies_s:
            extra = {"n": len(latencies_s)}
            entries.append(_entry(f"{suite}{LATENCY_SUFFIX}", mode, None, latencies_s, extra))
    if not entries:
        return None
    whole = msgspec.to_builtins(performance)
    del whole["first_token"]
    whole["limits"] = whole.pop("audit")
    if len(suites) == 1:
        entries[0]["extra_info"].update(whole)
    for entry in entries:
        entry["extra_info"]["simulated"] = manifest.simulated
    speeds = (part_speed(*scope, one) for scope, one in found.items())
    parts = [one for one in speeds if one is not None]
    run = {"run_id": manifest.run_id, "mode": mode, "simulated": manifest.simulated, **whole}
    return {
        "machine_info": machine_info(),
        "commit_info": commit_info(),
        "benchmarks": entries,
        "datetime": now.isoformat(),
        "version": pytest_benchmark.__version__,
        "ultrapar": {"runs": [{**run, "parts": msgspec.to_builtins(parts)}]},
    }


def note_tables_s(file: dict[str, Any], tables_s: float | None) -> None:
    """Add the time that the tables took, which is known only after the rest of the file is made."""
    for told in (file["ultrapar"]["runs"][0], file["benchmarks"][0]["extra_info"]):
        if "tables_s" in told:
            told["tables_s"] = tables_s


def is_of(scope: Scope, suite: str, model: str) -> bool:
    """Whether cases of this suite and model belong to the scope."""
    return scope[0] in {None, suite} and scope[1] in {None, model}


def in_scope(scope: Scope) -> Callable[[Kind], bool]:
    """Return a function that tells whether cases of a kind belong to the scope; see `is_of`."""
    return lambda kind: is_of(scope, kind.suite, kind.model)


def _cost(statistics: RunStatistics, currency: str) -> dict[str, Any]:
    return {} if statistics.cost is None else {"cost": statistics.cost, "currency": currency}


_SAID = (
    *("n_planned", "n_graded", "coverage", "counts", "makespan_s", "throughput", "serial_s"),
    *("speedup", "speedup_interval", "basis", "n_attempts", "tokens_in", "tokens_out"),
)


def _entries(
    suite: str, mode: str, model: str | None, statistics: RunStatistics, more: dict[str, Any]
) -> Iterator[Entry]:
    if statistics.makespan_s is not None:
        extra = {
            "n": statistics.n_timed,
            **{name: getattr(statistics, name) for name in _SAID},
            "scores": {name: score.mean for name, score in statistics.scores.items()},
            **more,
        }
        yield _entry(suite, mode, model, [statistics.makespan_s / statistics.n_timed], extra)
    if mode != "serial":
        yield from _alone(suite, model, statistics)


def _repetitions(measures: Measures) -> dict[str, Any]:
    """Return the field `repetitions`, with figures by name; empty if no cell has repetitions."""
    n = n_repetitions(measures.cells())
    rows = [*measures.repeated()] if n > 1 else []
    found = [cell_figure("", figure, rows) for figure in figures_of_cells(n)]
    shown = ("value", "interval", "n", "n_left_out")
    figures = {one.figure: {name: getattr(one, name) for name in shown} for one in found}
    return {"repetitions": {"n": n, **figures}} if n > 1 else {}


def _alone(suite: str, model: str | None, statistics: RunStatistics) -> Iterator[Entry]:
    """Yield the entry that a serial run would have, as estimated from this run in another mode."""
    sample = statistics.sample
    if sample is not None:
        n, serial_s = sample.n, sample.duration_s
    elif statistics.serial_s is not None:
        n, serial_s = statistics.n_timed, statistics.serial_s
    else:
        return
    serial_s = max(serial_s, RESOLUTION_S)
    extra = {
        "n": n,
        "basis": "sampled" if sample is not None else "at_most",
        "makespan_s": serial_s,
        "throughput": n / serial_s,
    }
    yield _entry(suite, "serial", model, [serial_s / n], extra)


def _group(suite: str, model: str | None) -> str:
    """Return the name of an entry's group: the same cases in different modes, or all latencies."""
    if suite.endswith(LATENCY_SUFFIX):
        return CASE_LATENCY
    return f"seconds per case: {suite}{f', {model}' if model is not None else ''}"


def _entry(
    suite: str, mode: str, model: str | None, samples_s: Sequence[float], extra_info: dict[str, Any]
) -> Entry:
    stats = Stats()  # type: ignore[no-untyped-call]
    stats.data.extend(samples_s)
    values = stats.as_dict()  # type: ignore[no-untyped-call]
    # If there is only one round, this value is the integer 0.
    values["stddev"] = float(values["stddev"])
    param = mode if model is None else f"{mode}-{model}"
    name = f"{suite}[{param}]"
    return {
        "group": _group(suite, model),
        "name": name,
        "fullname": name,
        "params": {"suite": suite, "mode": mode, "model": model},
        "param": param,
        "extra_info": extra_info,
        "options": _OPTIONS,
        "stats": {**values, "data": stats.data, "iterations": 1},
    }
