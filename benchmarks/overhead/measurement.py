"""Measurements in rounds: of this checkout alone, or of another checkout and this one in turn.

This checkout's code and server measure both checkouts, so only the client differs. Leases are an
exception, because there is no command for them: each checkout measures its own leases.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.overhead.command import Checkout
from pytest_ultrapar.analysis.paired import typical_ratio
from pytest_ultrapar.report.text import markdown_table

Rows = dict[str, dict[str, float]]
"""The figures of one round: by label (`-n 2`, ...), then by name."""

_WARM_UP_CASES = 20
"""Enough to make every client import its modules, which fills the page cache and compiles files."""
_FEW_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line.

    Attributes:
        checkout: The code to measure.
        n: Every `-n` to measure; empty means the default values of the measurement.
        runs: Number of rounds; None means the default of the measurement.
        pinned: Whether client and server have a core each.
        cases: Number of cases; None means the default of the measurement.
        before: The checkout to compare with.
        cooperative: An interpreter with pytest-asyncio-cooperative.
        round_no: Number of the round, from 0.
    """

    checkout: Checkout
    n: tuple[int, ...] = ()
    runs: int | None = None
    pinned: bool = False
    cases: int | None = None
    before: Checkout | None = None
    cooperative: Path | None = None
    round_no: int = 0


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the median of a figure.

    Attributes:
        label: The label of the row.
        figure: The name of the figure.
        pinned: True if the goal holds only with `--pinned`, since a shared core distorts the
            figure. False if it holds only without it, since workers need separate cores. None means
            that it holds in both cases.
    """

    label: str
    figure: str
    at_most: float | None = None
    at_least: float | None = None
    pinned: bool | None = None

    def judged(self, value: float) -> list[str]:
        """The figure, its median, the bound and the verdict as text."""
        bound = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        is_met = self.at_most is None or value <= self.at_most
        is_met &= self.at_least is None or value >= self.at_least
        verdict = "met" if is_met else "NOT met"
        return [f"{self.label}: {self.figure}", f"{value:.4g}", bound, verdict]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A repeatable measurement.

    Attributes:
        one_round: Measures once. With `options.before` it measures only the figures that a
            comparison needs.
        title: The title, or a function that makes it from the options.
        goals: Goals for the default number of cases. Goals without a figure are omitted.
        n_rounds: Default number of rounds.
        warm_up: Whether a small round comes before the others.
    """

    one_round: Callable[[Options], Rows]
    title: str | Callable[[Options], str]
    goals: tuple[Goal, ...] = ()
    n_rounds: int = 5
    warm_up: bool = True


Found = tuple[list[str], Sequence[object]]
"""Lines to print, and every round as plain values."""


def note(line: str) -> None:
    """Print the next step to stderr."""
    sys.stderr.write(f"... {line}\n")


def measure(measurement: Measurement, options: Options) -> Found:
    """Run all rounds after a warm-up.

    Raises:
        CommandError: A command failed.
        ConfigError: The provider cannot serve a pool.
    """
    n_rounds = options.runs or measurement.n_rounds
    if measurement.warm_up:
        note("warm-up")
        measurement.one_round(replace(options, cases=_WARM_UP_CASES))
    rounds: list[Rows] = []
    for number in range(n_rounds):
        note(f"round {number + 1} of {n_rounds}")
        rounds.append(measurement.one_round(replace(options, round_no=number)))
    return [*lines(measurement, rounds, options)], rounds


def lines(measurement: Measurement, rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """The title, median and range of every figure, and the goals."""
    title = measurement.title if isinstance(measurement.title, str) else measurement.title(options)
    yield f"{title}; simulated; median [min-max] of {len(rounds)}"
    labels = list(dict.fromkeys(label for rows in rounds for label in rows))
    names = list(dict.fromkeys(name for rows in rounds for row in rows.values() for name in row))
    yield from markdown_table(
        ["", *names],
        [[label, *(_spread(_values(rounds, label, name)) for name in names)] for label in labels],
        n_names=1,
    )
    if options.cases is None:
        judged = [
            goal.judged(statistics.median(values))
            for goal in measurement.goals
            if goal.pinned in {None, options.pinned}
            and (values := _values(rounds, goal.label, goal.figure))
        ]
        if judged:
            head = ["figure", "median", "goal", "verdict"]
            yield from ("", *markdown_table(head, judged, n_names=1))


def _values(rounds: Sequence[Rows], label: str, name: str) -> list[float]:
    return [rows[label][name] for rows in rounds if name in rows.get(label, {})]


def _spread(found: Sequence[float]) -> str:
    """`median [min-max]`; only the median if all values look the same; `-` without values."""
    if not found:
        return "-"
    middle, least, most = map(_shown, (statistics.median(found), min(found), max(found)))
    return middle if least == most else f"{middle} [{least}-{most}]"


def _shown(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < _FEW_DIGITS else f"{value:.1f}"


def compare(measurement: Measurement, options: Options) -> Found:
    """Run rounds of both checkouts in turn. The checkout that runs first alternates.

    Raises:
        CommandError: A command failed.
        ConfigError: The provider cannot serve a pool.
    """
    assert options.before is not None
    both = {"before": replace(options, checkout=options.before), "after": options}
    for side, own in both.items():
        note(f"warm-up: {side}")
        measurement.one_round(replace(own, cases=_WARM_UP_CASES))
    n_rounds = options.runs or measurement.n_rounds
    pairs: list[dict[str, Rows]] = []
    for number in range(n_rounds):
        pairs.append({})
        for side in sorted(both, reverse=number % 2 == 0):
            note(f"round {number + 1} of {n_rounds}: {side}")
            pairs[-1][side] = measurement.one_round(both[side])
    return pair_lines(pairs), pairs


def pair_lines(pairs: Sequence[dict[str, Rows]]) -> list[str]:
    """For every figure of both checkouts, a line: before, after, and whether the figure changed."""
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
    title = f"pairs of rounds: n = {len(pairs)}; medians; simulated"
    return [title, *markdown_table(head, rows, n_names=1)]
