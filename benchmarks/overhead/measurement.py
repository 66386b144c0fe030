"""Measurements in rounds: of this checkout alone, or of another one and this one in turn.

Both checkouts are measured by this one's code against this one's server, so only the client
differs; leases alone, for which there is no command, each measures by itself.
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
"""Of one round, by what is measured (`-n 2`, ...), its figures by name."""

_WARM_UP_CASES = 20
"""Enough that every client imports what it needs, so that compiled files and page cache are
there."""
_FEW_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for.

    Attributes:
        checkout: The code to measure.
        n: Every `-n` to measure; empty for those of the measurement.
        runs: How often; None for as often as the measurement says.
        pinned: Whether client and server have a core each.
        cases: How many instead of the measurement's own number.
        before: What to compare the checkout with.
        cooperative: An interpreter that has pytest-asyncio-cooperative.
        round_no: Which round this is, from 0.
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
    """A bound that the median of a figure has to keep.

    Attributes:
        label: What is measured.
        figure: Its figure.
        pinned: Only with `--pinned`, where a shared core would say nothing of the tool; or, if
            False, only without it, where workers need cores of their own; None for both.
    """

    label: str
    figure: str
    at_most: float | None = None
    at_least: float | None = None
    pinned: bool | None = None

    def judged(self, value: float) -> list[str]:
        """The figure, its median, the bound and the verdict, as text."""
        bound = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        is_met = self.at_most is None or value <= self.at_most
        is_met &= self.at_least is None or value >= self.at_least
        verdict = "met" if is_met else "NOT met"
        return [f"{self.label}: {self.figure}", f"{value:.4g}", bound, verdict]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What can be measured again and again.

    Attributes:
        one_round: Measures once; less if `options.before` says that only changes are asked for.
        title: What is measured; from the options where it depends on them.
        goals: For the measurement's own number of cases; those without a figure are left out.
        n_rounds: How many unless the command line says it.
        warm_up: Whether a small round comes before the others.
    """

    one_round: Callable[[Options], Rows]
    title: str | Callable[[Options], str]
    goals: tuple[Goal, ...] = ()
    n_rounds: int = 5
    warm_up: bool = True


Found = tuple[list[str], Sequence[object]]
"""Lines to show, and every round as plain values."""


def note(line: str) -> None:
    """Say what comes next to whoever waits."""
    sys.stderr.write(f"... {line}\n")


def measure(measurement: Measurement, options: Options) -> Found:
    """Run all rounds, after one to warm up.

    Raises:
        CommandError: A command ended badly.
        ConfigError: A pool cannot be served.
    """
    n_rounds = options.runs or measurement.n_rounds
    if measurement.warm_up:
        note("to warm up")
        measurement.one_round(replace(options, cases=_WARM_UP_CASES))
    rounds: list[Rows] = []
    for number in range(n_rounds):
        note(f"round {number + 1} of {n_rounds}")
        rounds.append(measurement.one_round(replace(options, round_no=number)))
    return [*lines(measurement, rounds, options)], rounds


def lines(measurement: Measurement, rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """What was measured, median and range of every figure, and the goals."""
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
    """`median [min-max]`, the one value if all look the same, `-` if there is none."""
    if not found:
        return "-"
    middle, least, most = map(_shown, (statistics.median(found), min(found), max(found)))
    return middle if least == most else f"{middle} [{least}-{most}]"


def _shown(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < _FEW_DIGITS else f"{value:.1f}"


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


def pair_lines(pairs: Sequence[dict[str, Rows]]) -> list[str]:
    """Every figure that both sides have, before and after, and whether it changed."""
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
