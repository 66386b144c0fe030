"""Figures as text: a table per workload, then what was to be reached and whether it was."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench_suites.overhead import (
    collection,
    forecast,
    growth,
    lease,
    matrix,
    memory,
    plugin_cost,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench_suites.overhead.collection import Collection
    from bench_suites.overhead.comparison import Measured
    from bench_suites.overhead.forecast import Forecasted
    from bench_suites.overhead.growth import GrowthRow
    from bench_suites.overhead.ideal import Ideal
    from bench_suites.overhead.lease import LeaseCost
    from bench_suites.overhead.matrix import MatrixRun
    from bench_suites.overhead.memory import Growth
    from bench_suites.overhead.plugin_cost import PluginCost
    from bench_suites.overhead.workload import Target, Workload

_GOALS = ["figure", "median", "goal", "verdict"]
_COLUMNS: Mapping[str, tuple[Callable[[Measured], float | None], str]] = {
    "efficiency": (lambda run: run.efficiency, ".3f"),
    "of lower bound": (lambda run: run.of_bound, ".3f"),
    "/ greedy": (lambda run: run.of_greedy, ".3f"),
    "peak in flight": (lambda run: run.peak_in_flight, ".0f"),
    "whole command s": (lambda run: run.wall_s, ".2f"),
    "ratio to raw": (lambda run: run.ratio, ".2f"),
    "/ plain xdist": (lambda run: run.of_plain, ".2f"),
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
    judged = [
        _judged(target, [run for run in runs if run.client == f"-n {target.n_processes}"])
        for target in workload.targets
        if f"-n {target.n_processes}" in clients and pinned >= target.pinned
    ]
    if judged:
        yield ""
        yield from _aligned([_GOALS, *judged])


def _judged(target: Target, runs: Sequence[Measured]) -> list[str]:
    median = statistics.median(getattr(run, target.figure) for run in runs)
    goal = str(target)
    return goal_row(
        f"-n {target.n_processes}: {target.figure}",
        median,
        goal.removeprefix(target.figure).strip(),
        met=target.is_met(median),
    )


def goal_row(what: str, value: float, goal: str, *, met: bool) -> list[str]:
    """A row of a table of goals: figure, value, goal and verdict."""
    return [what, f"{value:.4g}", goal, "met" if met else "NOT met"]


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
    yield from _goals(("every process: more MiB", most, bound))


def plugin_cost_lines(cost: PluginCost) -> Iterator[str]:
    """The cost of the plugin where it has nothing to do."""
    yield (
        f"imports: n = {cost.n} runs each of `pytest --collect-only` in an empty folder, medians: "
        f"{cost.without_ms:.1f} ms without the plugin, {cost.with_ms:.1f} ms with it"
    )
    yield f"more CPU: {cost.more_cpu_ms:.1f} ms; more modules: {len(cost.modules)}"
    bound = plugin_cost.MOST_MS
    yield from _goals(("difference of neighbours, ms", cost.more_ms, bound))


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
    yield from _goals(
        ("median error", median, forecast.MOST_MEDIAN), ("worst error", worst, forecast.MOST_WORST)
    )


def collection_lines(found: Collection) -> Iterator[str]:
    """The cost of collecting all five phases."""
    yield (
        f"collection: n = {found.n} cases and as many empty tests, beyond those of one: "
        f"{found.cpu_s:.2f} s and {found.empty_cpu_s:.2f} s of CPU, "
        f"{found.mib:.1f} and {found.empty_mib:.1f} MiB"
    )
    cpu, memory = collection.MOST_CPU_RATIO, collection.MOST_KIB
    yield from _goals(
        ("CPU of a case / that of an empty test", found.cpu_ratio, cpu),
        ("more memory of a case, KiB", found.more_kib, memory),
    )


def growth_lines(rows: Sequence[GrowthRow]) -> Iterator[str]:
    """What a case costs by how many there are."""
    yield (
        "growth: one-turn cases on 300 seats at 20 ms without xdist, simulated; beyond a run of "
        f"{memory.FEW}; one run each"
    )
    table = [
        ["n", "CPU ms/case", "of an empty test", "more bytes/case", "collected in s", "empty ones"]
    ]
    table += [
        [
            f"{row.n:,}",
            f"{row.cpu_ms:.3f}",
            f"{row.empty_cpu_ms:.3f}",
            f"{row.more_bytes:.0f}",
            f"{row.collect_s:.2f}",
            f"{row.empty_collect_s:.2f}",
        ]
        for row in rows
    ]
    yield from _aligned(table)
    grown = max(row.cpu_ms for row in rows) / rows[0].cpu_ms
    most_bytes = max(row.more_bytes for row in rows)
    yield from _goals(
        (f"CPU per case, most / that of {rows[0].n:,}", grown, growth.MOST_GROWTH),
        ("memory of a case beyond an empty test, bytes", most_bytes, growth.MOST_BYTES),
    )


def lease_lines(rounds: Sequence[LeaseCost]) -> Iterator[str]:
    """What a lease costs."""
    yield (
        f"lease: {lease.N_WORKERS} workers offer {lease.PER_S:g} leases/s on the root pool's lanes "
        f"without rates; median [min-max] of {len(rounds)}"
    )
    figures = {
        "in the process, seats free: us of CPU": [one.local_us for one in rounds],
        "in the process, others waiting: us of CPU": [one.waiting_us for one in rounds],
        "over the socket: us to the grant, mean": [one.socket_us for one in rounds],
        "over the socket: us to the grant, p99": [one.socket_p99_us for one in rounds],
        "broker's process: us of CPU": [one.broker_us for one in rounds],
        "granted per second": [one.per_s for one in rounds],
    }
    yield from _aligned(
        [["figure", "value"], *([name, spread(own, ".1f")] for name, own in figures.items())]
    )
    names = list(figures)
    bounds = {
        names[0]: lease.MOST_LOCAL_US,
        names[1]: lease.MOST_LOCAL_US,
        names[2]: lease.MOST_SOCKET_US,
        names[4]: lease.MOST_BROKER_US,
    }
    yield from _goals(
        *((name, statistics.median(figures[name]), bound) for name, bound in bounds.items())
    )


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
    judged = [
        goal_row(f"{client}, {policy}: efficiency", median, f">= {least:g}", met=median >= least)
        for (policy, client), median in medians.items()
        if policy == matrix.POLICIES[0]
    ]
    yield from _aligned([_GOALS, *judged])


def spread(values: Iterable[float | None], form: str) -> str:
    """`median [min-max]`, the one value if all look the same, `-` if there is none."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return "-"
    middle, least, most = (
        format(value, form) for value in (statistics.median(found), found[0], found[-1])
    )
    return middle if least == most else f"{middle} [{least}-{most}]"


def _goals(*rows: tuple[str, float, float]) -> Iterator[str]:
    """A table of figures that have an upper bound."""
    yield ""
    judged = [
        goal_row(what, value, f"<= {bound:g}", met=value <= bound) for what, value, bound in rows
    ]
    yield from _aligned([_GOALS, *judged])


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of a Markdown table; the first one is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield f"| {' | '.join(map(str.ljust, row, widths))} |"
        if number == 0:
            yield f"| {' | '.join('-' * width for width in widths)} |"
