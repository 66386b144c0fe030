"""Figures over cells (pass@k, pass^k, majority), and intervals that allow for repetitions.

The repetitions of a cell (the same test, parameters and model) all ask the same question. If the
question is hard, all of them tend to fail. So they form one cluster, like cases that a mark in the
suite declares to be dependent. Intervals are computed from the scatter between clusters.

Outcomes without a grade (`infra`, `error`, `skipped`) say nothing about the model. As everywhere
else, they are excluded from every count of cases (`n`). Only `solved` counts as solved; `partial`
does not. For `scored` cases, only means of scores are computed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.json import encode

from pytest_ultrapar.analysis.paired import (
    CONFIDENCE,
    NOTHING_KNOWN,
    Interval,
    Share,
    clustered_mean_interval,
    clustered_share,
    difference_interval,
    mean_interval,
    possible_change,
    possible_range,
    rate_difference,
)
from pytest_ultrapar.analysis.statistics import critical_t, critical_z, mean_of, wilson_interval
from pytest_ultrapar.records import RATED, by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.records import Case, Outcome


class Repetition(Protocol):
    """A case that has ended: either a row in `results`, or a `CaseMeasure`."""

    @property
    def case_id(self) -> str:
        """The case's id."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the case's grade, or the reason why the case was not graded."""

    @property
    def cell(self) -> str:
        """The name of its cell, from `cells_of`; empty if the case is alone in its cell."""

    @property
    def cluster(self) -> str | None:
        """The case cluster, as in `Case.cluster`."""


def question_of(case: Case) -> str:
    """Return the case's test, model and parameters as a text that all its repetitions share."""
    return f"{case.test} {case.model} {encode(case.params, order='sorted')!r}"


def cells_of(cases: Iterable[Case]) -> dict[str, str]:
    """Return the cell of each case, by case id.

    The cell is named by a text that only its repetitions share. If a case is alone in its cell, the
    text is empty.
    """
    own = list(cases)
    if not any(case.repeat for case in own):
        return dict.fromkeys([case.case_id for case in own], "")
    found: dict[str, str] = {}
    seen: Counter[tuple[str, int]] = Counter()
    # Use one object for equal texts, because 20,000 texts are compared often.
    texts: dict[str, str] = {}
    for case in own:
        name = question_of(case)
        # If a parameter is not a simple value, `params` contains only its name. So two questions
        # may have the same text, and then every repetition number occurs twice.
        question = seen[name, case.repeat]
        seen[name, case.repeat] += 1
        text = f"{name} {question}"
        found[case.case_id] = texts.setdefault(text, text)
    n_of = Counter(found.values())
    return {case_id: text if n_of[text] > 1 else "" for case_id, text in found.items()}


def questions_of(cases: Iterable[Case]) -> dict[str, tuple[int, int]]:
    """Return the question of each case, by case id. It does not depend on the model."""
    found: dict[str, tuple[int, int]] = {}
    numbers: dict[str, int] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for case in cases:
        name = f"{case.test} {case.repeat} {encode(case.params, order='sorted')!r}"
        number = numbers.setdefault(name, len(numbers))
        # As in `cells_of`, two questions may have the same text.
        found[case.case_id] = number, seen[number, case.model]
        seen[number, case.model] += 1
    return found


def _cell(row: Repetition) -> str:
    return row.cell or row.case_id


def n_repetitions(cells: Iterable[str]) -> int:
    """Return the largest number of repetitions in any cell, graded or not.

    Args:
        cells: The cell of each case; or a mapping from each cell to its number of cases.
    """
    found = Counter(cells)
    # Cases without a name of a cell are each alone in their cell.
    n_alone = found.pop("", 0)
    return max(found.values(), default=min(n_alone, 1))


def clusters_of(rows: Sequence[Repetition]) -> list[str]:
    """Return the cluster of each row: the one in the suite's mark, if any, or else the row's cell.

    If the mark names clusters, each repetition draws a new task. So the repetitions of a cell
    depend on each other only as much as cases of different cells do. If all rows belong to one cell
    and no mark names their cluster, they are regarded as independent draws from that cell.
    """
    found = [row.cluster or _cell(row) for row in rows]
    if len(set(found)) == 1 and rows[0].cluster is None:
        return [row.case_id for row in rows]
    return found


def share_of(
    rows: Sequence[Repetition], hits: Sequence[bool], *, confidence: float = CONFIDENCE
) -> Share | None:
    """Return the share of hits among graded rows, and an interval that allows for dependent rows.

    If no cluster contains several repetitions of a cell, the interval comes from `clustered_share`.
    So a run without repetitions has the usual interval. Otherwise the interval comes from
    `interval_over_clusters`.

    Returns:
        The share and its interval; None if there are no rows.
    """
    if not any(row.cell or row.cluster for row in rows):
        # Make no names of clusters: for a million cases, they would take 250 MB.
        return share_of_alone(sum(hits), len(hits), confidence=confidence)
    clusters = clusters_of(rows)
    cells = map(_cell, rows)
    if len(set(zip(clusters, cells, strict=True))) == len(rows):
        return clustered_share(zip(clusters, hits, strict=True), confidence=confidence)
    own = by_key(zip(clusters, hits, strict=True))
    parts = [(len(those), sum(those) / len(those)) for those in own.values()]
    low, high = interval_over_clusters(parts, len(rows), confidence)
    return Share(len(rows), sum(hits) / len(rows), low, high)


def share_of_alone(n_hits: int, n: int, *, confidence: float = CONFIDENCE) -> Share | None:
    """Do the same as `share_of` for `n` rows, each of which is a cluster of its own."""
    if not n:
        return None
    value = n_hits / n
    low, high = wilson_interval(value * n, n, critical_z(confidence))
    return Share(n, value, low, high)


def mean_interval_of(
    rows: Sequence[Repetition], values: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval:
    """Return an interval for a mean over rows, allowing for dependent rows.

    Args:
        rows: The rows that have a value. May be empty if each row is a cluster of its own.
        values: The value of each row.
        confidence: The confidence of the interval, 0 to 1.

    Returns:
        The interval. It is infinite for fewer than two values. If each value is either 0 or the
        same other number, the interval is computed from the share of rows with that number. If no
        value is negative, the lower end is not negative either. If no value is positive, the upper
        end is not positive either. The interval does not extend beyond the range of 0 and the
        observed values if there are enough values. There are enough if they show, at this
        confidence, that this range contains the mean.
    """
    ends = possible_range(values)
    is_rate = len({0.0, *values}) < 3 and len(values) > 1  # noqa: PLR2004 - 0 and one other number
    if is_rate and (share := share_of(rows, [*map(bool, values)], confidence=confidence)):
        return Interval(*sorted((ends.low or ends.high) * at for at in (share.low, share.high)))
    if any(row.cell or row.cluster for row in rows):
        of_clusters = [*zip(clusters_of(rows), values, strict=True)]
        found = clustered_mean_interval(of_clusters, ends=ends, confidence=confidence)
    else:
        found = mean_interval(values, ends=ends, confidence=confidence)
    if found == NOTHING_KNOWN:
        return found
    is_few = 0.5 ** len(values) > (1 - confidence) / 2  # all values may be on one side of the mean
    low = found.low if is_few and ends.low else max(found.low, ends.low)
    high = found.high if is_few and ends.high else min(found.high, ends.high)
    return Interval(low, high)


class SolvedChange(NamedTuple):
    """How many pairs have only one solved case, and an interval for the change in the solve rate.

    Attributes:
        n_gained: In how many pairs only the second case is solved.
        n_lost: In how many pairs only the first case is solved.
        interval: The interval for the change.
    """

    n_gained: int
    n_lost: int
    interval: Interval


def solved_change(
    pairs: Sequence[tuple[Repetition, Repetition]],
    clusters: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> SolvedChange:
    """Return the change in the solve rate from the first cases of the pairs to the second cases.

    The interval is computed as if the pairs were independent, and then widened if they are not.

    Args:
        pairs: One or more pairs. Both cases of each pair must have an outcome in `RATED`.
        clusters: The cluster of each pair; if None, `clusters_of` computes it.
        confidence: The confidence of the interval, 0 to 1.
    """
    solved = [(base.outcome == "solved", new.outcome == "solved") for base, new in pairs]
    n_gained, n_lost = solved.count((False, True)), solved.count((True, False))
    clusters = clusters_of([base for base, _ in pairs]) if clusters is None else clusters
    low, high = rate_difference(len(pairs), n_gained, n_lost, confidence=confidence)
    if len(set(clusters)) < len(pairs):
        changes = [
            (own, float(new) - base) for own, (base, new) in zip(clusters, solved, strict=True)
        ]
        wide = clustered_mean_interval(changes, ends=Interval(-1.0, 1.0), confidence=confidence)
        low, high = min(low, wide.low), max(high, wide.high)
    return SolvedChange(n_gained, n_lost, Interval(low, high))


def mean_change(
    clusters: Sequence[str], both: Sequence[tuple[float, float]], *, confidence: float = CONFIDENCE
) -> Interval:
    """Return an interval for the change in a mean, from pairs of values and the pairs' clusters."""
    changes = [(own, new - base) for own, (base, new) in zip(clusters, both, strict=True)]
    ends = possible_change(value for pair in both for value in pair)
    return clustered_mean_interval(changes, ends=ends, confidence=confidence)


_SHRINKAGE = 4.0


def interval_over_clusters(
    clusters: Sequence[tuple[float, float]], n: int, confidence: float
) -> tuple[float, float]:
    """Return an interval for the mean over clusters whose values are shares.

    This is Wilson's interval, computed with the effective number of cases and with Student's t for
    the number of clusters. The effective number is the number of independent cases that would
    scatter as much as the clusters do, but never more than the real number. If few clusters show
    the rarer outcome, the scatter itself is uncertain. For example, if one cell of 20 fails, it may
    be a cell that always fails. So the observed scatter is averaged with the largest possible
    scatter, which results if each cluster counts as one case. Their weights are `J^2` and 4, where
    `J` is the number of clusters with the rarer outcome. If there is only one cluster, or if all
    cases have the same result, each cluster counts as one case.

    This was tested on 2,000 simulated runs. In each cell, the chance that a repetition is solved
    was drawn from a beta distribution. The cells had 3 to 10 repetitions with correlations of 0.1
    to 0.8. This is how often the 95 % intervals contained the true value:

    - a solve rate of 0.3 to 0.7: in 93.6 to 97.0 % of the runs with 20 to 100 cells, and in 96.5 to
      98.8 % with 10 cells;
    - a solve rate of 0.05, 0.1, 0.9 or 0.95: in 94.2 to 98.7 % with 20 to 100 cells, and in 97.0 to
      99.3 % with 10 cells (with the observed scatter alone, 87.4 % at worst);
    - pass@k and pass^k between 0.05 and 0.95: in 92.6 to 99.0 % with 20 to 100 cells.

    The interval is too narrow in two situations. In the first, 8 of 10 cells have 9 of 10
    repetitions solved, and the other 2 cells have 0 solved. The interval then contains the true
    value in 90 % of the runs. In the second, the true share is very small: even twice as many
    cells contain, on average, less than one cell with the rarer outcome. If this share is
    0.008 and there are 20 cells, the interval contains it in 85 % of the runs.

    Args:
        clusters: The weight (a number of cases or cells) and the value of each cluster.
        n: The number of all cases.
        confidence: The confidence of the interval, 0 to 1.

    Source: J. N. K. Rao, A. J. Scott, A simple method for the analysis of clustered binary data,
        Biometrics 48 (1992) 577-585; E. L. Korn, B. I. Graubard, Confidence intervals for
        proportions with small expected number of positive counts estimated from survey data, Survey
        Methodology 24 (1998) 193-201; E. Miller, Adding error bars to evals, arXiv 2411.00640
        (2024), clustered standard errors. L. Kish, Survey sampling (1965), for the number of equal
        clusters to which unequal ones correspond. Averaging the scatter is not from the literature.
    """
    total = math.fsum(weight for weight, _ in clusters)
    value = math.fsum(weight * share for weight, share in clusters) / total
    n_once = total**2 / math.fsum(weight**2 for weight, _ in clusters)
    if len(clusters) == 1 or value in {0.0, 1.0}:
        return wilson_interval(value * n_once, n_once, critical_z(confidence))
    scatter = math.fsum((weight * (share - value)) ** 2 for weight, share in clusters) / total**2
    most = value * (1 - value) / n_once
    spread = min(
        _spread([weight * share for weight, share in clusters]),
        _spread([weight * (1 - share) for weight, share in clusters]),
    )
    variance = (spread**2 * scatter + _SHRINKAGE * most) / (spread**2 + _SHRINKAGE)
    n_effective = min(n, value * (1 - value) / variance)
    reach = critical_t(len(clusters), confidence)
    return wilson_interval(value * n_effective, n_effective, reach)


def _spread(amounts: Sequence[float]) -> float:
    """Return how many equal amounts would be as spread out as these; at least one must be > 0.

    Source: L. Kish, as above.
    """
    most = max(amounts)  # divide by it, because 1e-200 squared is 0
    return math.fsum(amount / most for amount in amounts) ** 2 / math.fsum(
        (amount / most) ** 2 for amount in amounts
    )


MAJORITY = "majority"
_PASS = re.compile(r"pass(?P<how>[@^])(?P<k>[1-9][0-9]{0,5})")


def figures_of_cells(n: int) -> tuple[str, ...]:
    """Return the figures to show for cells with `n` repetitions; empty if `n` is 1."""
    return ("pass@1", f"pass@{n}", f"pass^{n}", MAJORITY) if n > 1 else ()


def repetitions_of(figure: str) -> int | None:
    """Return how many graded repetitions of a cell a figure requires: k, or 1 for `majority`.

    Return None if this is not a figure over cells.
    """
    if figure == MAJORITY:
        return 1
    found = _PASS.fullmatch(figure)
    return int(found["k"]) if found is not None else None


def pass_at(k: int, n: int, c: int) -> float:
    """Return the chance that at least one repetition is solved if `k` are drawn from a cell's `n`.

    This is an unbiased estimate of `1 - (1 - p)^k`, where `p` is the chance that a repetition of
    the cell is solved.

    Args:
        k: How many repetitions are drawn, at least 1.
        n: How many repetitions of the cell are graded, at least `k`.
        c: How many of the `n` are solved.

    Source: M. Chen et al., Evaluating large language models trained on code, arXiv 2107.03374
        (2021), section 2.1.
    """
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_all(k: int, n: int, c: int) -> float:
    """Return the chance that all repetitions are solved if `k` are drawn from a cell's `n` >= `k`.

    This is an unbiased estimate of `p^k`, where `p` is the chance that a repetition is solved.

    Source: S. Yao et al., tau-bench: a benchmark for tool-agent-user interaction in real-world
        domains, arXiv 2406.12045 (2024).
    """
    return math.comb(c, k) / math.comb(n, k)


class _Tally(NamedTuple):
    """How many repetitions a cell has, how many of them are graded, and how many are solved."""

    n: int
    n_graded: int
    n_solved: int


def _tallies(repetitions: Iterable[tuple[str, Outcome]]) -> dict[str, _Tally]:
    """Count the repetitions of each cell. Each repetition is given as its cell and its outcome."""
    return {
        cell: _Tally(len(own), sum(each in RATED for each in own), own.count("solved"))
        for cell, own in by_key(repetitions).items()
    }


def _value(figure: str, cell: _Tally) -> float | None:
    """Return a figure's value for one cell; None if too few of its repetitions were graded."""
    if figure == MAJORITY:
        return float(2 * cell.n_solved > cell.n_graded) if 2 * cell.n_graded > cell.n else None
    k = repetitions_of(figure)
    assert k is not None
    if cell.n_graded < k:
        return None
    return (pass_at if "@" in figure else pass_all)(k, cell.n_graded, cell.n_solved)


class CellShare(NamedTuple):
    """A figure that is computed over cells.

    Attributes:
        value: The mean of the figure over the included cells.
        n: How many cells are included; at least one.
        n_left_out: How many cells are left out because they have too few graded repetitions.
        interval: The interval in which to expect `value` for other cells of this kind, or for the
            same cell if there is only one. If a mark names clusters, it is the interval for new
            draws from the same cells. It is then infinite for `majority`, and if `k` is more than
            half of the graded repetitions of any cell. There is no tested interval for these
            figures.
    """

    value: float
    n: int
    n_left_out: int
    interval: Interval


def cell_share(
    figure: str, rows: Sequence[Repetition], *, confidence: float = CONFIDENCE
) -> CellShare | None:
    """Compute a figure over cells. All cells have the same weight.

    Args:
        figure: `pass@K`, `pass^K` or `majority`. `majority` is the share of cells in which more
            than half of the graded repetitions are solved. Only cells with more than half of all
            their repetitions graded are included in this share.
        rows: All repetitions of the cells, graded or not.
        confidence: The confidence of the interval.

    Returns:
        The figure; None if no cell has enough graded repetitions.
    """
    tallies = _tallies((_cell(row), row.outcome) for row in rows)
    known = {
        cell: value
        for cell, tally in tallies.items()
        if (value := _value(figure, tally)) is not None
    }
    if not known:
        return None
    low, high = _interval_of_cells(figure, rows, tallies, known, confidence)
    value = mean_of(known.values())
    return CellShare(value, len(known), len(tallies) - len(known), Interval(low, high))


def _interval_of_cells(
    figure: str,
    rows: Sequence[Repetition],
    tallies: Mapping[str, _Tally],
    known: Mapping[str, float],
    confidence: float,
) -> tuple[float, float]:
    if len(known) == 1 and figure != MAJORITY:
        ((cell, value),) = known.items()
        return _interval_of_one(figure, tallies[cell], value, confidence)
    counted = [row for row in rows if row.outcome in RATED and _cell(row) in known]
    if all(row.cluster is None for row in counted):
        parts = [(1.0, value) for value in known.values()]
        return interval_over_clusters(parts, len(counted), confidence)
    if not _draws_tell(figure, (tallies[cell] for cell in known)):
        return NOTHING_KNOWN
    mean = mean_of(known.values())
    moves = _moves(figure, ((_cell(row), row.outcome) for row in counted), tallies, known)
    low, high = clustered_mean_interval(
        [
            (cluster, mean + len(counted) * moved)
            for cluster, moved in zip(clusters_of(counted), moves, strict=True)
        ],
        ends=Interval(0.0, 1.0),
        confidence=confidence,
    )
    return max(0.0, low), min(1.0, high)


def _interval_of_one(
    figure: str, cell: _Tally, value: float, confidence: float
) -> tuple[float, float]:
    """Return the interval of a figure for one cell.

    It is computed from the interval for the chance that a repetition of the cell is solved.
    """
    k = repetitions_of(figure)
    assert k is not None
    chances = wilson_interval(cell.n_solved, cell.n_graded, critical_z(confidence))
    low, high = (1 - (1 - p) ** k if "@" in figure else p**k for p in chances)
    # Include the estimate: for some k, it is always 0 or 1 and does not depend on the chance.
    return min(low, value), max(high, value)


def _draws_tell(figure: str, cells: Iterable[_Tally]) -> bool:
    """Whether an interval is possible if each repetition draws a new task.

    It is not possible for `majority`. Otherwise each cell needs `n >= 2 * k` graded repetitions.
    """
    k = repetitions_of(figure)
    return figure != MAJORITY and all(2 * (k or 1) <= cell.n_graded for cell in cells)


def _moves(
    figure: str,
    repetitions: Iterable[tuple[str, Outcome]],
    tallies: Mapping[str, _Tally],
    known: Mapping[str, float],
) -> list[float]:
    """Return how far each repetition moves a mean over cells, to first order; these moves sum to 0.

    If each repetition draws a new task, the sample consists of the repetitions, not of the cells. A
    repetition then moves its cell's figure in proportion to the slope of `1 - (1 - p)^k`, or of
    `p^k`. The slope is taken at the share of the cell's repetitions that are solved.

    Source: like the delete-one jackknife of a U-statistic; W. Hoeffding, A class of statistics with
        asymptotically normal distribution, Ann. Math. Stat. 19 (1948) 293-325 (projection).
    """
    k = repetitions_of(figure) or 1
    mean = mean_of(known.values())
    found = []
    for cell, outcome in repetitions:
        if cell not in known or outcome not in RATED:
            found.append(0.0)
            continue
        _, n, c = tallies[cell]
        slope = k * (1 - c / n if "@" in figure else c / n) ** (k - 1)
        moved = known[cell] - mean + slope * (float(outcome == "solved") - c / n)
        found.append(moved / (len(known) * n))
    return found


class CellChange(NamedTuple):
    """The change in a figure over cells, from one run to another, compared cell by cell.

    Attributes:
        base: The baseline's figure, over the cells with enough graded repetitions in both runs.
        new: The new run's figure over the same cells.
        n: The number of these cells; at least one.
        n_left_out: How many cells are left out because they have too few graded repetitions in one
            of the runs.
        interval: The interval of `new - base`.
        alike: Whether the figure of each cell is the same in both runs.
    """

    base: float
    new: float
    n: int
    n_left_out: int
    interval: Interval
    alike: bool


def cell_change(
    figure: str, pairs: Sequence[tuple[Repetition, Repetition]], *, confidence: float = CONFIDENCE
) -> CellChange | None:
    """Compute how a figure over cells changed between two runs; see `cell_share`.

    Only repetitions that are in both runs are used. In each run, the `n` of a cell is the number of
    these repetitions that the run graded.

    Args:
        figure: One of the figures that `cell_share` accepts.
        pairs: Each repetition as a pair: its case in the first run and in the second, graded or
            not.
        confidence: The confidence of the interval.

    Returns:
        The change; None if no cell has enough graded repetitions in both runs.
    """
    tallies = (
        _tallies((_cell(base), base.outcome) for base, _ in pairs),
        _tallies((_cell(base), new.outcome) for base, new in pairs),
    )
    known: dict[str, tuple[float, float]] = {}
    for cell, tally in tallies[0].items():
        base, new = _value(figure, tally), _value(figure, tallies[1][cell])
        if base is not None and new is not None:
            known[cell] = base, new
    if not known:
        return None
    base, new = (mean_of(values) for values in zip(*known.values(), strict=True))
    if len(known) == 1 and figure != MAJORITY:
        (cell,) = known
        intervals = [
            Interval(*_interval_of_one(figure, own[cell], value, confidence))
            for own, value in zip(tallies, known[cell], strict=True)
        ]
        interval = difference_interval(base, intervals[0], new, intervals[1])
    else:
        changes = {cell: late - early for cell, (early, late) in known.items()}
        rated = (both for both in pairs if any(row.outcome in RATED for row in both))
        counted = [both for both in rated if _cell(both[0]) in known]
        values = list(changes.items())
        if any(row.cluster is not None for row, _ in counted):
            values = _changes_by_draw(figure, counted, tallies, known)
        low, high = clustered_mean_interval(values, ends=Interval(-1.0, 1.0), confidence=confidence)
        interval = Interval(max(-1.0, low), min(1.0, high)) if values else NOTHING_KNOWN
    return CellChange(
        base,
        new,
        len(known),
        len(tallies[0]) - len(known),
        interval,
        all(early == late for early, late in known.values()),
    )


def _changes_by_draw(
    figure: str,
    pairs: Sequence[tuple[Repetition, Repetition]],
    tallies: tuple[Mapping[str, _Tally], Mapping[str, _Tally]],
    known: Mapping[str, tuple[float, float]],
) -> list[tuple[str, float]]:
    """Return the cluster of each pair, and the pair's effect on the change; empty if unknown."""
    if not all(_draws_tell(figure, (own[cell] for cell in known)) for own in tallies):
        return []
    moves = []
    for turn, own in enumerate(tallies):
        repetitions = ((_cell(both[0]), both[turn].outcome) for both in pairs)
        values = {cell: both[turn] for cell, both in known.items()}
        moves.append(_moves(figure, repetitions, own, values))
    change = mean_of([late - early for early, late in known.values()])
    clusters = clusters_of([base for base, _ in pairs])
    return [
        (cluster, change + len(pairs) * (after - before))
        for cluster, before, after in zip(clusters, *moves, strict=True)
    ]
