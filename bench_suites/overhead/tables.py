"""Figures as text: a table per workload, then what was to be reached and whether it was."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench_suites.overhead import collection, forecast, matrix, memory, plugin_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench_suites.overhead.collection import Collection
    from bench_suites.overhead.comparison import Measured
    from bench_suites.overhead.forecast import Forecasted
    from bench_suites.overhead.ideal import Ideal
    from bench_suites.overhead.matrix import MatrixRun
    from bench_suites.overhead.memory import Growth
    from bench_suites.overhead.plugin_cost import PluginCost
    from bench_suites.overhead.workload import Target, Workload

_COLUMNS: Mapping[str, tuple[Callable[[Measured], float], str]] = {
    "efficiency": (lambda run: run.efficiency, ".3f"),
    "of lower bound": (lambda run: run.of_bound, ".3f"),
    "peak in flight": (lambda run: run.peak_in_flight, ".0f"),
    "whole command s": (lambda run: run.wall_s, ".2f"),
    "ratio to raw": (lambda run: run.ratio, ".2f"),
    "CPU ms/case": (lambda run: run.cpu_ms_per_case, ".2f"),
    "429s": (lambda run: run.n_429, ".0f"),
}


def comparison_lines(
    workload: Workload, best: Ideal, runs: Sequence[Measured], *, pinned: bool
) -> Iterator[str]:
    """Median and range of every figure by client, and the targets."""
    n_rounds = 1 + max(run.round_no for run in runs)
    yield (
        f"{workload.name}: n = {workload.n_cases} cases of {workload.n_turns} turn(s), "
        f"{best.n_seats} seats, {'pinned' if pinned else 'not pinned'}, simulated; "
        f"median [min-max] of {n_rounds}"
    )
    yield (
        f"ideal {best.mean_s:.3f} s at the pool's mean latency; of the latencies drawn: "
        f"lower bound {best.bound_s:.3f} s ({best.total_s:.1f} s of service / {best.n_seats} "
        f"seats, longest episode {best.longest_s:.3f} s); "
        f"greedy without any cost {best.greedy_s:.3f} s, "
        f"{best.bound_s / best.greedy_s:.3f} of the lower bound"
    )
    clients = list(dict.fromkeys(run.client for run in runs))
    rows = [["client", *_COLUMNS]]
    for client in clients:
        own = [run for run in runs if run.client == client]
        rows.append([client, *(spread(map(value, own), form) for value, form in _COLUMNS.values())])
    yield from _aligned(rows)
    for target in workload.targets:
        client = f"-n {target.n_processes}"
        if client in clients and pinned >= target.pinned:
            yield _judged(target, [run for run in runs if run.client == client])


def _judged(target: Target, runs: Sequence[Measured]) -> str:
    median = statistics.median(getattr(run, target.figure) for run in runs)
    return _verdict(f"-n {target.n_processes}: {target}", median, met=target.is_met(median))


def memory_lines(growths: Sequence[Growth]) -> Iterator[str]:
    """Every process's peaks and growth."""
    yield (
        f"memory: n = {growths[0].n} one-turn cases against as many empty tests, simulated; "
        f"peak of resident memory in MiB, with {memory.FEW} cases and with all"
    )
    rows = [["client", "process", "cases", "empty tests", "growth", "of empty tests", "more"]]
    rows += [
        [
            row.client,
            row.process,
            f"{row.few_mib:.1f} -> {row.many_mib:.1f}",
            f"{row.empty_few_mib:.1f} -> {row.empty_many_mib:.1f}",
            f"{row.many_mib - row.few_mib:.1f}",
            f"{row.empty_many_mib - row.empty_few_mib:.1f}",
            f"{row.more_mib:.1f}",
        ]
        for row in growths
    ]
    yield from _aligned(rows)
    most = max(row.more_mib for row in growths)
    bound = memory.MOST_MIB
    yield _verdict(f"every process: more <= {bound:g} MiB", most, met=most <= bound)


def plugin_cost_lines(cost: PluginCost) -> Iterator[str]:
    """The cost of the plugin where it has nothing to do."""
    yield (
        f"imports: n = {cost.n} runs each of `pytest --collect-only` in an empty folder, medians: "
        f"{cost.without_ms:.1f} ms without the plugin, {cost.with_ms:.1f} ms with it"
    )
    yield f"more CPU: {cost.more_cpu_ms:.1f} ms; more modules: {len(cost.modules)}"
    bound = plugin_cost.MOST_MS
    met = cost.more_ms < bound
    yield _verdict(f"difference of neighbours < {bound:g} ms", cost.more_ms, met=met)


def forecast_lines(found: Sequence[Forecasted]) -> Iterator[str]:
    """Every plan beside its run, and how far they are apart."""
    yield f"forecast: {len(found)} plans and the runs that followed, simulated"
    rows = [["pool", "mode", "from", "requests", "predicted s", "measured s", "ratio"]]
    rows += [
        [
            one.name,
            one.mode,
            one.basis,
            str(one.n),
            f"{one.predicted_s:.2f}",
            f"{one.measured_s:.2f}",
            f"{one.ratio:.3f}",
        ]
        for one in found
    ]
    yield from _aligned(rows)
    median, worst = forecast.errors(found)
    for figure, value, bound in (
        ("median error", median, forecast.MOST_MEDIAN),
        ("worst error", worst, forecast.MOST_WORST),
    ):
        yield _verdict(f"{figure} <= {bound:g}", value, met=value <= bound)


def collection_lines(found: Collection) -> Iterator[str]:
    """The cost of collecting all five phases."""
    yield (
        f"collection: n = {found.n} cases and as many empty tests, beyond those of one: "
        f"{found.cpu_s:.2f} s and {found.empty_cpu_s:.2f} s of CPU, "
        f"{found.mib:.1f} and {found.empty_mib:.1f} MiB"
    )
    cpu, memory = collection.MOST_CPU_RATIO, collection.MOST_KIB
    met = found.cpu_ratio <= cpu
    yield _verdict(f"CPU of a case / that of an empty test <= {cpu:g}", found.cpu_ratio, met=met)
    met = found.more_kib <= memory
    yield _verdict(f"more memory of a case <= {memory:g} KiB", found.more_kib, met=met)


def matrix_lines(runs: Sequence[MatrixRun]) -> Iterator[str]:
    """Efficiency on the uneven pool, by policy."""
    yield f"matrix: n = {runs[0].n} cases of six turns on an uneven pool, simulated; median [range]"
    rows = [["policy", "client", "makespan s", "lower bound s", "efficiency"]]
    medians = {}
    for policy, client in dict.fromkeys((run.policy, run.client) for run in runs):
        own = [run for run in runs if (run.policy, run.client) == (policy, client)]
        medians[policy, client] = statistics.median(run.efficiency for run in own)
        rows.append(
            [
                policy,
                client,
                spread((run.makespan_s for run in own), ".1f"),
                spread((run.bound_s for run in own), ".1f"),
                spread((run.efficiency for run in own), ".3f"),
            ]
        )
    yield from _aligned(rows)
    least = matrix.LEAST_EFFICIENCY
    for (policy, client), median in medians.items():
        if policy == matrix.POLICIES[0]:
            met = median >= least
            yield _verdict(f"{client}, policy {policy}: efficiency >= {least:g}", median, met=met)


def spread(values: Iterator[float], form: str) -> str:
    """`median [min-max]`, or the one value if all look the same."""
    found = sorted(values)
    middle, least, most = (
        format(value, form) for value in (statistics.median(found), found[0], found[-1])
    )
    return middle if least == most else f"{middle} [{least}-{most}]"


def _verdict(what: str, value: float, *, met: bool) -> str:
    return f"target {what}: {value:.4g}, {'met' if met else 'NOT met'}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of a Markdown table; the first one is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield f"| {' | '.join(map(str.ljust, row, widths))} |"
        if number == 0:
            yield f"| {' | '.join('-' * width for width in widths)} |"
