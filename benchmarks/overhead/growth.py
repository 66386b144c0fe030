"""Whether a case costs the same among few and among many: CPU, memory, collection.

What does not depend on the number of cases (modules, connections) is in a run of `FEW` cases as
well, so figures are those beyond such a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.overhead.command_line import note
from benchmarks.overhead.comparison import run_workload
from benchmarks.overhead.rounds import Measurement
from benchmarks.overhead.tables import at_most, figures, goals, median
from benchmarks.overhead.workload import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.overhead.command import Cost
    from benchmarks.overhead.command_line import Options
    from benchmarks.overhead.tables import Rows

SIZES = (3_000, 20_000, 100_000)
FEW = 300
"""Cases of the small runs: as many as seats, so that every connection and every module is there."""

MOST_GROWTH = 1.10
"""CPU per case among the most cases / among the fewest."""
MOST_BYTES = 2000.0
"""Memory of a case beyond that of an empty test."""
MOST_MIB = 15.0
"""A process may grow by so much more over its cases than over as many empty tests."""

_EMPTY = "benchmarks/overhead/test_empty.py"
_MIB = 1 << 20


def growth_round(options: Options) -> Rows:
    """Run each size without xdist on answers of 20 ms, and as many empty tests.

    `more_bytes` is the memory of a case in pytest's process at its peak, beyond that of an empty
    test; `cpu_ms` is of all processes of the client, the compaction included.
    """
    sizes = (options.cases,) if options.cases else SIZES
    n_few = _few(sizes[0])
    few = run_cases(n_few, 0, options)
    empty_few = None if options.before else _run_empty(n_few, 0, options)
    rows: Rows = {}
    for n in sizes:
        many, more = run_cases(n, 0, options), n - n_few
        suite = f"benchmarks/overhead/{MEMORY.test}"
        row = rows[f"n = {n:,}"] = {
            "cpu_ms": 1000 * (many.cpu_s - few.cpu_s) / more,
            "collect_s": _collect(n, options, suite, f"--ultrapar-pool={MEMORY.pool_path}").cpu_s,
            "wall_s": many.wall_s,
            "pytest_mib": many.peaks_mib["pytest"],
        }
        if empty_few is not None:
            empty_many = _run_empty(n, 0, options)
            more_mib = _grown(few, many) - _grown(empty_few, empty_many)
            row["empty_cpu_ms"] = 1000 * (empty_many.cpu_s - empty_few.cpu_s) / more
            row["more_bytes"] = more_mib * _MIB / more
            row["empty_collect_s"] = _collect(n, options, _EMPTY).cpu_s
    return rows


def growth_lines(rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """What a case costs by how many there are."""
    yield (
        "growth: one-turn cases on 300 seats at 20 ms without xdist, simulated; CPU and bytes per "
        f"case beyond a run of {_few(options.cases or SIZES[0])}; CPU of collecting them all; "
        f"median [min-max] of {len(rounds)}"
    )
    yield from figures(rounds)
    sizes = list(rounds[0])
    cpu_ms = [median(rounds, size, "cpu_ms") for size in sizes]
    yield from goals(
        at_most(
            f"CPU per case, most / that of {sizes[0].removeprefix('n = ')}",
            max(cpu_ms) / cpu_ms[0],
            MOST_GROWTH,
        ),
        at_most(
            "memory of a case beyond an empty test, bytes",
            max(median(rounds, size, "more_bytes") for size in sizes),
            MOST_BYTES,
        ),
    )


def memory_round(options: Options) -> Rows:
    """Run few and many cases and empty tests with each `-n`; the peaks of each process."""
    n_cases = options.cases or MEMORY.n_cases
    n_few = _few(n_cases)
    rows: Rows = {}
    for n in options.n or MEMORY.n_processes:
        few, many = (run_cases(size, n, options).peaks_mib for size in (n_few, n_cases))
        if options.before:
            own = {name: {"few_mib": few[name], "many_mib": many[name]} for name in many}
        else:
            empty = (_run_empty(size, n, options).peaks_mib for size in (n_few, n_cases))
            own = memory_of_processes(few, many, *empty)
        rows |= {f"-n {n}, {name}": row for name, row in own.items()}
    return rows


def memory_of_processes(
    few: Mapping[str, float],
    many: Mapping[str, float],
    empty_few: Mapping[str, float],
    empty_many: Mapping[str, float],
) -> Rows:
    """The peaks of each process, and its growth beyond that of empty tests; 0 without any."""
    rows = {}
    for name in many:
        empty = empty_few.get(name, 0.0), empty_many.get(name, 0.0)
        rows[name] = {
            "few_mib": few[name],
            "many_mib": many[name],
            "empty_few_mib": empty[0],
            "empty_many_mib": empty[1],
            "more_mib": (many[name] - few[name]) - (empty[1] - empty[0]),
        }
    return rows


def memory_lines(rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """Every process's peaks and growth."""
    n_cases = options.cases or MEMORY.n_cases
    yield (
        f"memory: n = {n_cases} one-turn cases against as many empty tests, simulated; peak of "
        f"resident memory in MiB, with {_few(n_cases)} cases and with all"
    )
    yield from figures(rounds)
    most = max(median(rounds, process, "more_mib") for process in rounds[0])
    yield from goals(at_most("every process: more MiB", most, MOST_MIB))


def _few(n_cases: int) -> int:
    return min(FEW, n_cases // 2)


def run_cases(n: int, n_processes: int, options: Options) -> Cost:
    """Run so many cases, with a look at the memory of each process.

    The kernel's own figure is that of the largest process, and the compaction of 100,000 cases is
    larger than pytest.
    """
    note(f"-n {n_processes}: {n} cases")
    return run_workload(replace(MEMORY, n_cases=n), n_processes, options, watched=True)[0]


def _run_empty(n: int, n_processes: int, options: Options) -> Cost:
    note(f"-n {n_processes}: {n} empty tests")
    argv = options.checkout.pytest(f"-n{n_processes}", _EMPTY, f"--overhead-cases={n}")
    return options.checkout.run(argv, watched=True)


def _collect(n: int, options: Options, *more: str) -> Cost:
    note(f"{n} items collected")
    argv = options.checkout.pytest("--collect-only", f"--overhead-cases={n}", *more)
    return options.checkout.run(argv)


def _grown(few: Cost, many: Cost) -> float:
    return many.peaks_mib["pytest"] - few.peaks_mib["pytest"]


GROWTH = Measurement(growth_round, growth_lines, n_rounds=1)
MEMORY_OF_PROCESSES = Measurement(memory_round, memory_lines, n_rounds=1)
