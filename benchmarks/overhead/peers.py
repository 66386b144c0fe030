"""The tool beside other clients of the same cases: a bare one, and a plugin that holds no limits.

All run in turn, each against a fresh server, the tool in an environment without extras and without
the project's conftests, which load the other suites: it is compared as its users have it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.overhead.command import ALONE
from benchmarks.overhead.command_line import note
from benchmarks.overhead.comparison import (
    RAW,
    bare_command,
    client_row,
    pytest_command,
    raw_client,
    run_client,
    sized,
    title,
)
from benchmarks.overhead.environments import cooperative_python, tool_python
from benchmarks.overhead.ideal import ideal_of
from benchmarks.overhead.rounds import Measurement, measure
from benchmarks.overhead.tables import at_least, at_most, figures, goals, median
from benchmarks.overhead.workload import LONG_TAIL, SMALL, WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.overhead.command_line import Found, Options
    from benchmarks.overhead.comparison import Client
    from benchmarks.overhead.tables import Rows
    from benchmarks.overhead.workload import Workload

PEERS = {workload.name: workload for workload in (WIDE, SMALL, LONG_TAIL)}
COOPERATIVE = "cooperative"
"""The name of pytest-asyncio-cooperative where the tool has its `-n`."""

_DIVIDED = ("efficiency", "first_s", "phase_s", "end_s", "wall_s", "cpu_ms_per_case")
_FIRST = (at_most, "first_s", COOPERATIVE, 1.5)
_GOALS = {
    "wide": (
        (at_least, "efficiency", RAW, 0.95),
        (at_most, "cpu_ms_per_case", COOPERATIVE, 1.1),
        (at_most, "wall_s", COOPERATIVE, 1.1),
        _FIRST,
    ),
    "small": ((at_most, "wall_s", COOPERATIVE, 1.08), _FIRST),
    "long-tail": ((at_most, "wall_s", COOPERATIVE, 0.9), _FIRST),
}
"""Of a figure with `-n 0` / that of another client, with `--pinned`."""


def measure_peers(workload: Workload, options: Options) -> Found:
    """Run all clients in rounds, after one to warm up.

    Raises:
        CommandError: A command ended badly.
        ConfigError: An environment cannot be made or lacks something.
    """
    cooperative = cooperative_python(options.cooperative)
    tool = replace(options.checkout, python=str(tool_python()))
    measurement = Measurement(
        partial(peers_round, workload, cooperative), partial(peers_lines, workload)
    )
    return measure(measurement, replace(options, checkout=tool))


def peers_round(workload: Workload, cooperative: Path, options: Options) -> Rows:
    """Run every client once; the figures of each, and the tool's divided by the others'.

    Raises:
        CommandError: A command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    workload = sized(workload, options)
    best = ideal_of(workload)
    tools: dict[str, Client] = {
        f"-n {n}": partial(
            pytest_command, workload, ALONE, n_processes=n, checkout=options.checkout
        )
        for n in options.n or (0,)
    }
    others: dict[str, Client] = {
        COOPERATIVE: partial(bare_command, workload, "cooperative_client", cooperative),
        RAW: raw_client(workload),
    }
    rows: Rows = {}
    for name, client in {**tools, **others}.items():
        note(f"{workload.name}: {name}")
        rows[name] = client_row(workload, best, *run_client(workload, client, options))
    quotients = {
        f"{tool} / {other}": quotient(rows[tool], rows[other]) for tool in tools for other in others
    }
    return rows | quotients


def quotient(row: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """Each figure that says how good a client is / the other's."""
    return {name: row[name] / other[name] for name in _DIVIDED}


def peers_lines(workload: Workload, rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """Median and range of every figure and quotient, and the goals."""
    workload = sized(workload, options)
    yield from title(workload, rounds, options)
    yield from figures(rounds)
    if options.pinned and "-n 0" in rounds[0]:
        judged = []
        for judge, figure, other, bound in _GOALS[workload.name]:
            label = f"-n 0 / {other}"
            judged.append(judge(f"{label}: {figure}", median(rounds, label, figure), bound))
        yield from goals(*judged)
