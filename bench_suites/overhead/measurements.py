"""What `python -m bench_suites.overhead` measures, by name: how it is run, and how it is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench_suites.adaptive.search import measure_searches, search_lines
from bench_suites.overhead import growth, matrix, tables
from bench_suites.overhead.adaptive_runs import adaptive_run_lines, measure_adaptive_runs
from bench_suites.overhead.collection import measure_collection
from bench_suites.overhead.comparison import compare
from bench_suites.overhead.environment import Environment
from bench_suites.overhead.forecast import measure_forecasts
from bench_suites.overhead.gate import gate_lines, measure_gate
from bench_suites.overhead.growth import measure_sizes
from bench_suites.overhead.ideal import ideal_of
from bench_suites.overhead.lease import measure_leases
from bench_suites.overhead.matrix import measure_matrix
from bench_suites.overhead.memory import measure_growth
from bench_suites.overhead.plugin_cost import measure_plugin_cost
from bench_suites.overhead.workload import COMPARISONS, MEMORY

if TYPE_CHECKING:
    import argparse

_Found = tuple[Iterator[str], Sequence[Any]]
LEAST_IMPORT_RUNS = 20


def measure(name: str, arguments: argparse.Namespace, environment: Environment) -> _Found:
    """Measure one of `ALL`.

    Args:
        name: Which one.
        arguments: The command's: `n`, `runs`, `pinned`.
        environment: See `environment.measured_environment`.

    Returns:
        Lines to show, and every run as plain values.

    Raises:
        CommandError: A command that is measured ended badly.
        ConfigError: A pool cannot be served.
    """
    how = _MEASUREMENTS.get(name)
    return how(arguments, environment) if how else _compare(name, arguments, environment)


def _compare(name: str, arguments: argparse.Namespace, environment: Environment) -> _Found:
    workload = COMPARISONS[name]
    runs = compare(
        workload,
        n_processes=arguments.n or workload.n_processes,
        n_rounds=arguments.runs,
        pinned=arguments.pinned,
        environment=environment,
        note=_note,
    )
    lines = tables.comparison_lines(workload, ideal_of(workload), runs, pinned=arguments.pinned)
    return lines, runs


def _adaptive(arguments: argparse.Namespace, environment: Environment) -> _Found:
    del arguments, environment
    searches = measure_searches(note=_note)
    return search_lines(searches), searches


def _adaptive_runs(arguments: argparse.Namespace, environment: Environment) -> _Found:
    runs = measure_adaptive_runs(arguments.runs, environment=environment, note=_note)
    return adaptive_run_lines(runs), runs


def _lease(arguments: argparse.Namespace, environment: Environment) -> _Found:
    del environment
    leases = measure_leases(arguments.runs, note=_note)
    return tables.lease_lines(leases), leases


def _growth(arguments: argparse.Namespace, environment: Environment) -> _Found:
    del arguments
    sizes = measure_sizes(growth.SIZES, environment=environment, note=_note)
    return tables.growth_lines(sizes), sizes


def _memory(arguments: argparse.Namespace, environment: Environment) -> _Found:
    growths = [
        row
        for n in arguments.n or MEMORY.n_processes
        for row in measure_growth(n, n_cases=MEMORY.n_cases, environment=environment, note=_note)
    ]
    return tables.memory_lines(growths), growths


def _matrix(arguments: argparse.Namespace, environment: Environment) -> _Found:
    runs = measure_matrix(
        arguments.n or matrix.N_PROCESSES, arguments.runs, environment=environment, note=_note
    )
    return tables.matrix_lines(runs), runs


def _collection(arguments: argparse.Namespace, environment: Environment) -> _Found:
    collection = measure_collection(arguments.runs, environment=environment, note=_note)
    return tables.collection_lines(collection), [collection]


def _imports(arguments: argparse.Namespace, environment: Environment) -> _Found:
    n_runs = max(arguments.runs, LEAST_IMPORT_RUNS)
    cost = measure_plugin_cost(n_runs, environment=environment, note=_note)
    return tables.plugin_cost_lines(cost), [cost]


def _forecast(arguments: argparse.Namespace, environment: Environment) -> _Found:
    del arguments
    forecasts = measure_forecasts(environment=environment, note=_note)
    return tables.forecast_lines(forecasts), forecasts


def _gate(arguments: argparse.Namespace, environment: Environment) -> _Found:
    del arguments
    judgements = measure_gate(environment=environment, note=_note)
    return gate_lines(judgements), judgements


_MEASUREMENTS: dict[str, Callable[[argparse.Namespace, Environment], _Found]] = {
    "adaptive": _adaptive,
    "adaptive-runs": _adaptive_runs,
    "lease": _lease,
    "growth": _growth,
    "memory": _memory,
    "matrix": _matrix,
    "collection": _collection,
    "imports": _imports,
    "forecast": _forecast,
    "gate": _gate,
}
ALL = (*COMPARISONS, *_MEASUREMENTS)


def _note(line: str) -> None:
    sys.stderr.write(f"... {line}\n")
