"""Figures as text: tables of measurements, and of what was to be reached and whether it was."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ultrapar.report.text import markdown_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = dict[str, dict[str, float]]
    """Of one round, by what is measured (`-n 2`, ...), its figures by name."""

_FEW_DIGITS = 10


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return markdown_table(head, rows, n_names=len(head))


def figures(rounds: Sequence[Rows]) -> list[str]:
    """A table of all rounds: a line for what is measured, a column for each figure."""
    labels = list(dict.fromkeys(label for rows in rounds for label in rows))
    names = list(dict.fromkeys(name for rows in rounds for row in rows.values() for name in row))
    return table(
        ["", *names],
        [[label, *(spread(values(rounds, label, name)) for name in names)] for label in labels],
    )


def values(rounds: Sequence[Rows], label: str, name: str) -> list[float]:
    """One figure in all rounds that have it."""
    return [rows[label][name] for rows in rounds if name in rows.get(label, {})]


def median(rounds: Sequence[Rows], label: str, name: str) -> float:
    """The median of one figure over all rounds."""
    return statistics.median(values(rounds, label, name))


def spread(found: Sequence[float]) -> str:
    """`median [min-max]`, the one value if all look the same, `-` if there is none."""
    if not found:
        return "-"
    middle, least, most = map(_shown, (statistics.median(found), min(found), max(found)))
    return middle if least == most else f"{middle} [{least}-{most}]"


def _shown(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < _FEW_DIGITS else f"{value:.1f}"


def goals(*rows: tuple[str, float, str, bool]) -> list[str]:
    """A table of figures with a goal: what, its value, the goal, whether it is met."""
    judged = [
        [what, f"{value:.4g}", goal, "met" if met else "NOT met"] for what, value, goal, met in rows
    ]
    return ["", *table(["figure", "median", "goal", "verdict"], judged)] if judged else []


def at_most(what: str, value: float, bound: float) -> tuple[str, float, str, bool]:
    """A row of `goals` with an upper bound."""
    return what, value, f"<= {bound:g}", value <= bound


def at_least(what: str, value: float, bound: float) -> tuple[str, float, str, bool]:
    """A row of `goals` with a lower bound."""
    return what, value, f">= {bound:g}", value >= bound
