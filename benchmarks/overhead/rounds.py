"""Measurements in rounds: of this checkout alone, or of another one and this one in turn.

Both checkouts are measured by this one's code against this one's server, so only the client
differs; leases alone, for which there is no command, each measures by itself.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.overhead.command_line import note
from benchmarks.overhead.tables import table
from pytest_ultrapar.analysis.paired import typical_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.overhead.command_line import Found, Options
    from benchmarks.overhead.tables import Rows

_WARM_UP_CASES = 20
"""Enough that every client imports what it needs, so that compiled files and page cache are
there."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What can be measured again and again.

    Attributes:
        one_round: Measures once; less if `options.before` says that only changes are asked for.
        lines: What is said about all rounds: what was measured, the figures, the goals.
        n_rounds: How many unless the command line says it.
    """

    one_round: Callable[[Options], Rows]
    lines: Callable[[Sequence[Rows], Options], Iterable[str]]
    n_rounds: int = 5


def measure(measurement: Measurement, options: Options) -> Found:
    """Run all rounds, after one to warm up.

    Raises:
        CommandError: A command ended badly.
        ConfigError: A pool cannot be served.
    """
    n_rounds = options.runs or measurement.n_rounds
    note("to warm up")
    measurement.one_round(replace(options, cases=_WARM_UP_CASES))
    rounds: list[Rows] = []
    for number in range(n_rounds):
        note(f"round {number + 1} of {n_rounds}")
        rounds.append(measurement.one_round(options))
    return measurement.lines(rounds, options), rounds


def compare(measurement: Measurement, options: Options) -> Found:
    """Run a round of both checkouts in turn; every other time the later one comes first.

    Raises:
        CommandError: A command ended badly.
        ConfigError: A pool cannot be served.
    """
    assert options.before is not None
    both = {"before": replace(options, checkout=options.before), "after": options}
    for side, own in both.items():
        note(f"to warm up: {side}")
        measurement.one_round(replace(own, cases=_WARM_UP_CASES))
    n_rounds = options.runs or measurement.n_rounds
    pairs: list[dict[str, Rows]] = []
    for number in range(n_rounds):
        pairs.append({})
        for side in sorted(both, reverse=number % 2 == 0):
            note(f"round {number + 1} of {n_rounds}: {side}")
            pairs[-1][side] = measurement.one_round(both[side])
    return pair_lines(pairs), pairs


def pair_lines(pairs: Sequence[dict[str, Rows]]) -> Iterator[str]:
    """Every figure that both sides have, before and after, and whether it changed."""
    yield f"pairs of rounds: n = {len(pairs)}; medians; simulated"
    rows = []
    for label, figures in pairs[0]["before"].items():
        for name in figures:
            if name not in pairs[0]["after"].get(label, {}):
                continue
            before, after = (
                [pair[side][label][name] for pair in pairs] for side in ("before", "after")
            )
            change = ["-", "-", "-"]
            if ratio := typical_ratio(before, after):
                factor, (low, high) = ratio
                verdict = "more" if low > 1 else "less" if high < 1 else "no difference seen"
                change = [f"{factor:.3f}", f"{low:.3f} to {high:.3f}", verdict]
            medians = (f"{statistics.median(values):.4g}" for values in (before, after))
            rows.append([f"{label}: {name}", *medians, *change])
    head = ["figure", "before", "after", "after / before", "95 % interval", "verdict"]
    yield from table(head, rows)
