"""Whether two runs gave the same answers, as far as grades tell."""

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
"""Changes of a solved rate up to here, 2 points, are taken as none."""
SCORE_MARGIN_SD = 0.1
"""The same for the mean of a score, in standard deviations of the score."""
SCORE_MARGIN_LEAST = 0.01
"""And never less than this part of its largest value: 1 point of a score that goes up to 1."""
ALL_MODELS = ""
RATE = "solved_rate"


class Answer(Repetition, Protocol):
    """A graded case, as a row of `results` or as a measure."""

    @property
    def model(self) -> str:
        """Who answered."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Its scores by name."""


_A = TypeVar("_A", bound=Answer)


class Look(msgspec.Struct, frozen=True):
    """One figure of the answers, looked at in both runs.

    Attributes:
        model: Name of the model; empty for all together.
        figure: `solved_rate`, `score.<name>` or a figure of cells, such as `pass@5`.
        n: Pairs of cases, both graded; of a figure of cells, cells.
        base: The figure in the baseline.
        low: Of the difference, new - base; holds together with those of all other looks.
        margin: Differences up to here are taken as none.
        n_gained: Cases solved in the new run alone; 0 for other figures than the solved rate.
        chance: McNemar's p-value; None for other figures than the solved rate.
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
    """What two runs' answers to the same cases have in common.

    Attributes:
        verdict: `different` where a look differs, `same` where each is within its margin or no
            grade differs at all, else `undecided`: the cases are too few to tell.
        n: Pairs of cases that both runs graded.
        n_changed: Of these, with another outcome or another score.
        looks: All models together, then each, by name.
        text: One or two sentences.
    """

    verdict: Verdict
    n: int
    n_changed: int
    looks: tuple[Look, ...]
    text: str


def equivalence(base_rows: Iterable[Answer], new_rows: Iterable[Answer]) -> Equivalence:
    """Whether two runs gave the same answers, as far as grades tell.

    Solved rate and every score, over all models together and for each, are compared case by case;
    95 % intervals that hold for all these looks together (Bonferroni) decide.

    Raises:
        ConfigError: No case was graded in both.
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
    """Those of which both runs say whether they are solved."""
    return [both for both in pairs if all(row.outcome in RATED for row in both)]


def looks_at(model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE) -> Iterator[Look]:
    """The solved rate of graded pairs, where they have one, then the mean of each common score."""
    if rated := rated_pairs(pairs):
        yield rate_look(model, rated, confidence)
    for name in common_scores(pairs):
        yield score_look(model, pairs, name, confidence)


def rate_look(model: str, pairs: Sequence[Pair], confidence: float = CONFIDENCE) -> Look:
    """The share of solved cases in both runs, of at least one pair that both rated."""
    n = len(pairs)
    gained, lost, (low, high) = solved_change(pairs, _clusters(pairs), confidence=confidence)
    before = sum(base.outcome == "solved" for base, _ in pairs)
    rates = before / n, (before + gained - lost) / n
    chance = mcnemar(gained, lost)
    return Look(model, RATE, n, *rates, low, high, RATE_MARGIN, gained, lost, chance)


def score_look(
    model: str, pairs: Sequence[Pair], name: str, confidence: float = CONFIDENCE
) -> Look:
    """The mean of a score in both runs, of the pairs that have it in both; at least one."""
    scored = [(base, new) for base, new in pairs if name in base.scores and name in new.scores]
    both = [(base.scores[name], new.scores[name]) for base, new in scored]
    values = [value for pair in both for value in pair]
    low, high = mean_change(_clusters(scored), both, confidence=confidence).known
    mean = mean_of(values)
    spread = math.hypot(*[value - mean for value in values]) / math.sqrt(len(values))
    least = SCORE_MARGIN_LEAST * max(map(abs, possible_range(values)))
    base, new = (mean_of(own) for own in zip(*both, strict=True))
    margin = max(SCORE_MARGIN_SD * spread, least)
    return Look(model, f"score.{name}", len(both), base, new, low, high, margin)


def cell_look(model: str, figure: str, pairs: Sequence[Pair]) -> Look | None:
    """A figure of cells in both runs; None where no cell has enough graded repetitions.

    Args:
        model: Its name.
        figure: As of `cell_share`.
        pairs: All common cases, graded or not.
    """
    change = cell_change(figure, pairs)
    if change is None:
        return None
    low, high = change.interval.known
    return Look(model, figure, change.n, change.base, change.new, low, high, RATE_MARGIN)


def _clusters(pairs: Sequence[Pair]) -> list[str]:
    """Repetitions of a cell are one cluster; those of marks count in rules alone."""
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


def _distance(look: Look) -> float:
    """How far the interval is beyond the margin on either side, by its own width."""
    if look.low is None or look.high is None:
        return -math.inf
    beyond = max(look.low - look.margin, -look.margin - look.high)
    width = look.high - look.low
    if width > 0:
        return beyond / width
    return math.inf if beyond > 0 else -math.inf


def _text(verdict: Verdict, n: int, n_changed: int, looks: Sequence[Look]) -> str:
    have = "case has" if n == 1 else "cases have"
    if not n_changed:
        return f"{'the one' if n == 1 else f'all {n:,}'} {have} the same grades in both runs"
    if not looks:
        return f"{n_changed:,} of {n:,} {have} other grades, and no figure is in both runs"
    worst = max(looks, key=_distance)
    of = f" of {worst.model}" if worst.model else ""
    change = f"{worst.figure}{of} went from {worst.base:.3f} to {worst.new:.3f} (n = {worst.n:,})"
    said = f"{n_changed:,} of {n:,} {have} other grades; "
    if verdict == "different":
        return f"{said}{change}, beyond what is taken as none ({worst.margin:.3f})"
    if verdict == "same":
        return f"{said}no figure moved by more than is taken as none"
    return f"{said}no significant change; closest to significance: {change}"
