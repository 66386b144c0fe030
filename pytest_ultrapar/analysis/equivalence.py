"""Whether two runs gave the same answers, by their grades."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import msgspec

from pytest_ultrapar.analysis.paired import CONFIDENCE, mcnemar, possible_range
from pytest_ultrapar.analysis.repetitions import (
    Repetition,
    cell_change,
    clusters_of,
    mean_change,
    solved_change,
)
from pytest_ultrapar.analysis.statistics import mean_of
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.records import GRADED, RATED, by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Pair = tuple["Answer", "Answer"]


Verdict = Literal["same", "different", "undecided"]
RATE_MARGIN = 0.02
"""Changes of a solved rate up to this, 2 points, are ignored."""
SCORE_MARGIN_SD = 0.1
"""The same for the mean of a score, in standard deviations of the score."""
SCORE_MARGIN_LEAST = 0.01
"""The least margin, as a share of the largest value: 1 point for a score up to 1."""
ALL_MODELS = ""
RATE = "solved_rate"


class Answer(Repetition, Protocol):
    """A graded case, as a row of `results` or as a measure."""

    @property
    def model(self) -> str:
        """The model that answered."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Its scores by name."""


_A = TypeVar("_A", bound=Answer)


class ComparedFigure(msgspec.Struct, frozen=True):
    """One figure of the answers, compared in both runs.

    Attributes:
        model: Name of the model; empty for all models together.
        figure: `solved_rate`, `score.<name>` or a figure of cells, such as `pass@5`.
        n: Pairs of cases that both runs graded; for a figure of cells, cells.
        base: The figure in the baseline.
        new: The figure in the other run.
        low: Lower bound of new - base; all looks hold together.
        high: Upper bound of new - base.
        margin: Differences up to this are ignored.
        n_gained: Cases solved only in the new run; 0 unless the figure is the solved rate.
        n_lost: Cases solved only in the baseline.
        chance: McNemar's p-value; None unless the figure is the solved rate.
    """

    model: str
    figure: str
    n: int
    base: float
    new: float
    low: float | None
    high: float | None
    margin: float
    n_gained: int = 0
    n_lost: int = 0
    chance: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the difference is beyond the margin with confidence."""
        return (self.low is not None and self.low > self.margin) or (
            self.high is not None and self.high < -self.margin
        )

    @property
    def is_same(self) -> bool:
        """Whether the difference is within the margin with confidence."""
        if self.low is None or self.high is None:
            return False
        return -self.margin <= self.low and self.high <= self.margin


class Equivalence(msgspec.Struct, frozen=True):
    """The comparison of two runs' answers to the same cases.

    Attributes:
        verdict: `different` if a look differs; `same` if each look is within its margin or no grade
            differs; else `undecided`, because there are too few cases.
        n: Pairs of cases that both runs graded.
        n_changed: Pairs with different outcomes or scores.
        looks: All models together, then each model, by name.
        text: One or two sentences.
    """

    verdict: Verdict
    n: int
    n_changed: int
    looks: tuple[ComparedFigure, ...]
    text: str


def equivalence(base_rows: Iterable[Answer], new_rows: Iterable[Answer]) -> Equivalence:
    """Compare the answers of two runs, by their grades.

    The solved rate and every score, for all models together and for each, are compared case by
    case. The verdict depends on 95 % intervals that hold for all these looks together (Bonferroni).

    Raises:
        ConfigError: No case was graded in both runs.
    """
    pairs = graded_pairs(base_rows, new_rows)
    if not pairs:
        refuse("no case was graded in both runs")
    by_model = by_key((pair[0].model, pair) for pair in pairs)
    parts = dict(sorted(by_model.items())) if len(by_model) > 1 else {}
    groups = {ALL_MODELS: pairs, **parts}
    n_looks = sum(bool(rated_pairs(own)) + len(common_scores(own)) for own in groups.values())
    confidence = 1 - (1 - CONFIDENCE) / max(1, n_looks)
    looks = tuple(
        look for model, group in groups.items() for look in looks_at(model, group, confidence)
    )
    n, n_changed = len(pairs), sum(changed(*pair) for pair in pairs)
    verdict: Verdict = "undecided"
    if any(look.differs for look in looks):
        verdict = "different"
    elif not n_changed or (looks and all(look.is_same for look in looks)):
        verdict = "same"
    return Equivalence(verdict, n, n_changed, looks, _text(verdict, n, n_changed, looks))


def graded_pairs(base_rows: Iterable[_A], new_rows: Iterable[_A]) -> list[tuple[_A, _A]]:
    """The cases that both runs graded, in the order of the baseline."""
    new = {row.case_id: row for row in new_rows if row.outcome in GRADED}
    return [
        (row, other)
        for row in base_rows
        if row.outcome in GRADED and (other := new.get(row.case_id)) is not None
    ]


def rated_pairs(pairs: Sequence[tuple[_A, _A]]) -> list[tuple[_A, _A]]:
    """The pairs in which both runs graded with more than scores."""
    return [both for both in pairs if all(row.outcome in RATED for row in both)]


def looks_at(
    model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE
) -> Iterator[ComparedFigure]:
    """The solved rate of graded pairs, if they have one, then the mean of each common score."""
    if rated := rated_pairs(pairs):
        yield rate_look(model, rated, confidence)
    for name in common_scores(pairs):
        yield score_look(model, pairs, name, confidence)


def rate_look(model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE) -> ComparedFigure:
    """The share of solved cases in both runs, over rated pairs, at least one."""
    n = len(pairs)
    gained, lost, (low, high) = solved_change(pairs, _clusters(pairs), confidence=confidence)
    before = sum(base.outcome == "solved" for base, _ in pairs)
    rates = before / n, (before + gained - lost) / n
    chance = mcnemar(gained, lost)
    return ComparedFigure(model, RATE, n, *rates, low, high, RATE_MARGIN, gained, lost, chance)


def score_look(
    model: str, pairs: Sequence[Pair], name: str, confidence: float = CONFIDENCE
) -> ComparedFigure:
    """The mean of a score in both runs, over the pairs that have it in both, at least one."""
    scored = [(base, new) for base, new in pairs if name in base.scores and name in new.scores]
    both = [(base.scores[name], new.scores[name]) for base, new in scored]
    values = [value for pair in both for value in pair]
    low, high = mean_change(_clusters(scored), both, confidence=confidence).known
    mean = mean_of(values)
    spread = math.hypot(*[value - mean for value in values]) / math.sqrt(len(values))
    least = SCORE_MARGIN_LEAST * max(map(abs, possible_range(values)))
    base, new = (mean_of(own) for own in zip(*both, strict=True))
    margin = max(SCORE_MARGIN_SD * spread, least)
    return ComparedFigure(model, f"score.{name}", len(both), base, new, low, high, margin)


def cell_look(model: str, figure: str, pairs: Sequence[Pair]) -> ComparedFigure | None:
    """A figure of cells in both runs; None if no cell has enough graded repetitions.

    Args:
        model: The model's name.
        figure: As for `cell_share`.
        pairs: All common cases, graded or not.
    """
    change = cell_change(figure, pairs)
    if change is None:
        return None
    low, high = change.interval.known
    return ComparedFigure(model, figure, change.n, change.base, change.new, low, high, RATE_MARGIN)


def _clusters(pairs: Sequence[Pair]) -> list[str]:
    """Repetitions of a cell are one cluster; clusters of marks count only in rules."""
    rows = [base for base, _ in pairs]
    return [
        cluster if row.cluster is None else row.case_id
        for row, cluster in zip(rows, clusters_of(rows), strict=True)
    ]


def common_scores(pairs: Iterable[Pair]) -> list[str]:
    """Names of the scores that a case has in both runs, sorted."""
    return sorted({name for base, new in pairs for name in base.scores.keys() & new.scores.keys()})


def changed(base: Answer, new: Answer) -> bool:
    """Whether outcome or scores of a case differ."""
    return base.outcome != new.outcome or dict(base.scores) != dict(new.scores)


def _distance(look: ComparedFigure) -> float:
    """The distance of the interval beyond the margin on either side, in widths of the interval."""
    if look.low is None or look.high is None:
        return -math.inf
    beyond = max(look.low - look.margin, -look.margin - look.high)
    width = look.high - look.low
    if width > 0:
        return beyond / width
    return math.inf if beyond > 0 else -math.inf


def _text(verdict: Verdict, n: int, n_changed: int, looks: Sequence[ComparedFigure]) -> str:
    have = "case has" if n == 1 else "cases have"
    if not n_changed:
        return f"{'the one' if n == 1 else f'all {n:,}'} {have} the same grades in both runs"
    if not looks:
        return f"{n_changed:,} of {n:,} {have} different grades, and no figure is in both runs"
    worst = max(looks, key=_distance)
    name = f"{worst.figure} of {worst.model}" if worst.model else worst.figure
    change = f"{name} went from {worst.base:.3f} to {worst.new:.3f} (n = {worst.n:,})"
    said = f"{n_changed:,} of {n:,} {have} different grades; "
    if verdict == "different":
        return f"{said}{change}, beyond the margin of {worst.margin:.3f}"
    if verdict == "same":
        return f"{said}no figure changed by more than its margin"
    return f"{said}no significant change; closest to significance: {change}"
