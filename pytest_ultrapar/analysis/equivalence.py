"""Decide whether two runs gave the same answers, judging by the grades."""

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
"""A solve rate may change by this much (2 percentage points) before the change counts."""
SCORE_MARGIN_SD = 0.1
"""How far the mean of a score may change before the change counts, in standard deviations of the
score."""
SCORE_MARGIN_LEAST = 0.01
"""The smallest margin of a score, as a share of the score's largest value. For scores up to 1, it
is 0.01."""
ALL_MODELS = ""
RATE = "solved_rate"


class Answer(Repetition, Protocol):
    """A graded case: either a row in `results`, or a `CaseMeasure`."""

    @property
    def model(self) -> str:
        """The model that answered."""

    @property
    def scores(self) -> Mapping[str, float]:
        """The case's scores by name."""


_A = TypeVar("_A", bound=Answer)


class ComparedFigure(msgspec.Struct, frozen=True):
    """One figure that describes the answers, compared between two runs.

    Attributes:
        model: The model's name; empty for all models together.
        figure: `solved_rate`, `score.<name>` or a figure over cells, such as `pass@5`.
        n: How many cases, graded in both runs, are compared; for a figure over cells, how many
            cells.
        base: The figure in the baseline.
        new: The figure in the other run.
        low: The lower end of the interval for new - base. The intervals of all compared figures are
            valid at the same time.
        high: The upper end of this interval.
        margin: The largest difference that is ignored.
        n_gained: How many cases only the new run solved; 0 unless the figure is the solve rate.
        n_lost: How many cases only the baseline solved; 0 unless the figure is the solve rate.
        chance: McNemar's p-value; None unless the figure is the solve rate.
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
        """Whether the interval of the difference is entirely outside the margin."""
        return (self.low is not None and self.low > self.margin) or (
            self.high is not None and self.high < -self.margin
        )

    @property
    def is_same(self) -> bool:
        """Whether the interval of the difference is entirely within the margin."""
        if self.low is None or self.high is None:
            return False
        return -self.margin <= self.low and self.high <= self.margin


class Equivalence(msgspec.Struct, frozen=True):
    """The comparison of two runs' answers to the same cases.

    Attributes:
        verdict: `different` if any compared figure differs; `same` if all figures are within their
            margins, or if no grade changed. Otherwise it is `undecided`: there are too few cases to
            tell.
        n: How many cases both runs graded.
        n_changed: How many of these cases have different outcomes or scores in the two runs.
        looks: The compared figures: first for all models together, then for each model, in the
            order of the models' names.
        text: The result in one or two sentences.
    """

    verdict: Verdict
    n: int
    n_changed: int
    looks: tuple[ComparedFigure, ...]
    text: str


def equivalence(base_rows: Iterable[Answer], new_rows: Iterable[Answer]) -> Equivalence:
    """Compare the answers of two runs, judging by the grades.

    The solve rate and every score are compared case by case, first for all models together and then
    for each model. The verdict is based on intervals that hold for all these comparisons together
    with 95 % confidence (Bonferroni).

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
    """Return both answers for each case that both runs graded, in the order of the baseline."""
    new = {row.case_id: row for row in new_rows if row.outcome in GRADED}
    return [
        (row, other)
        for row in base_rows
        if row.outcome in GRADED and (other := new.get(row.case_id)) is not None
    ]


def rated_pairs(pairs: Sequence[tuple[_A, _A]]) -> list[tuple[_A, _A]]:
    """Return the pairs in which both grades say whether the case was solved."""
    return [both for both in pairs if all(row.outcome in RATED for row in both)]


def looks_at(
    model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE
) -> Iterator[ComparedFigure]:
    """Compare graded pairs by solve rate, if they have one, and by each score in both runs."""
    if rated := rated_pairs(pairs):
        yield rate_look(model, rated, confidence)
    for name in common_scores(pairs):
        yield score_look(model, pairs, name, confidence)


def rate_look(model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE) -> ComparedFigure:
    """Compare the share of solved cases between the runs; at least one rated pair is required."""
    n = len(pairs)
    gained, lost, (low, high) = solved_change(pairs, _clusters(pairs), confidence=confidence)
    before = sum(base.outcome == "solved" for base, _ in pairs)
    rates = before / n, (before + gained - lost) / n
    chance = mcnemar(gained, lost)
    return ComparedFigure(model, RATE, n, *rates, low, high, RATE_MARGIN, gained, lost, chance)


def score_look(
    model: str, pairs: Sequence[Pair], name: str, confidence: float = CONFIDENCE
) -> ComparedFigure:
    """Compare the mean of a score over the pairs with this score in both runs; one must exist."""
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
    """Compare a figure over cells between runs; None if no cell has enough graded repetitions.

    Args:
        model: The model's name.
        figure: The same as for `cell_share`.
        pairs: All cases that are in both runs, graded or not.
    """
    change = cell_change(figure, pairs)
    if change is None:
        return None
    low, high = change.interval.known
    return ComparedFigure(model, figure, change.n, change.base, change.new, low, high, RATE_MARGIN)


def _clusters(pairs: Sequence[Pair]) -> list[str]:
    """Return each pair's cluster: its cell if the cell has repetitions, otherwise the pair alone.

    If a mark in the suite names a case cluster, its pairs are alone here too. Only rules
    (`compare/rules.py`) use such clusters.
    """
    rows = [base for base, _ in pairs]
    return [
        cluster if row.cluster is None else row.case_id
        for row, cluster in zip(rows, clusters_of(rows), strict=True)
    ]


def common_scores(pairs: Iterable[Pair]) -> list[str]:
    """Return the sorted names of all scores that at least one case has in both runs."""
    return sorted({name for base, new in pairs for name in base.scores.keys() & new.scores.keys()})


def changed(base: Answer, new: Answer) -> bool:
    """Whether the outcome or the scores of a case differ between the two runs."""
    return base.outcome != new.outcome or dict(base.scores) != dict(new.scores)


def _distance(look: ComparedFigure) -> float:
    """Return how far the interval is beyond either margin, relative to the interval's width."""
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
        return f"{'the only' if n == 1 else f'all {n:,}'} {have} the same grades in both runs"
    if not looks:
        return f"{n_changed:,} of {n:,} {have} different grades, but no figure is in both runs"
    worst = max(looks, key=_distance)
    name = f"{worst.figure} of {worst.model}" if worst.model else worst.figure
    change = f"{name} went from {worst.base:.3f} to {worst.new:.3f} (n = {worst.n:,})"
    said = f"{n_changed:,} of {n:,} {have} different grades; "
    if verdict == "different":
        return f"{said}{change}, beyond the margin of {worst.margin:.3f}"
    if verdict == "same":
        return f"{said}no figure changed by more than its margin"
    return f"{said}no significant change; closest to significance: {change}"
