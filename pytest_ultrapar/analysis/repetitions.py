"""Repetitions of a cell as one measurement: pass@k, pass^k, majority, and intervals over cells.

Repetitions of a cell (same test, parameters and model) are one question asked again: where the
question is hard, all of them tend to fail. So they are one cluster, like the cases that a suite's
mark says depend on each other, and an interval stands on how far the clusters differ.

What is no grade (`infra`, `error`, `skipped`) says nothing of the model and is in no n, as
everywhere else; `solved` alone counts as solved, `partial` does not. Of `scored` cases there are
means alone.
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
    """A case that came to its end, as a row of `results` or as a measure."""

    @property
    def case_id(self) -> str:
        """The case."""

    @property
    def outcome(self) -> Outcome:
        """Its grade, or why it has none."""

    @property
    def cell(self) -> str:
        """What `cells_of` calls its cell; empty where it shares it with no other case."""

    @property
    def cluster(self) -> str | None:
        """`Case.cluster`."""


def question_of(case: Case) -> str:
    """What is asked of whom, as text: the same for all repetitions."""
    return f"{case.test} {case.model} {encode(case.params, order='sorted')!r}"


def cells_of(cases: Iterable[Case]) -> dict[str, str]:
    """The cell of each case, by case id: a text that all its repetitions share, and no others.

    It is empty for a case that is alone in its cell.
    """
    own = list(cases)
    if not any(case.repeat for case in own):
        return dict.fromkeys([case.case_id for case in own], "")
    found: dict[str, str] = {}
    seen: Counter[tuple[str, int]] = Counter()
    # One object for each text: 20,000 of them are compared often.
    texts: dict[str, str] = {}
    for case in own:
        name = question_of(case)
        # A parameter stands in `params` by its name where it is no plain value, so two questions
        # may look alike; then they have the same repetitions, too.
        question = seen[name, case.repeat]
        seen[name, case.repeat] += 1
        text = f"{name} {question}"
        found[case.case_id] = texts.setdefault(text, text)
    n_of = Counter(found.values())
    return {case_id: text if n_of[text] > 1 else "" for case_id, text in found.items()}


def questions_of(cases: Iterable[Case]) -> dict[str, tuple[int, int]]:
    """What each case asks, by case id: the same for the cases of all models that are asked it."""
    found: dict[str, tuple[int, int]] = {}
    numbers: dict[str, int] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for case in cases:
        name = f"{case.test} {case.repeat} {encode(case.params, order='sorted')!r}"
        number = numbers.setdefault(name, len(numbers))
        # As in `cells_of`, two may look alike.
        found[case.case_id] = number, seen[number, case.model]
        seen[number, case.model] += 1
    return found


def _cell(row: Repetition) -> str:
    return row.cell or row.case_id


def n_repetitions(cells: Iterable[str]) -> int:
    """How many repetitions the cells have, those that were not graded included; the most of any.

    Args:
        cells: Of each case, or how many cases each has.
    """
    found = Counter(cells)
    # Each of these is alone in its cell.
    n_alone = found.pop("", 0)
    return max(found.values(), default=min(n_alone, 1))


def clusters_of(rows: Sequence[Repetition]) -> list[str]:
    """The cluster of each row: what the suite's mark says, else its cell.

    A suite whose mark names clusters says by it that each repetition draws anew (another task), so
    that its repetitions depend on each other no more than its cases do. Of one cell alone,
    repetitions are all that there is to sample: they are independent draws of that cell.
    """
    found = [row.cluster or _cell(row) for row in rows]
    if len(set(found)) == 1 and rows[0].cluster is None:
        return [row.case_id for row in rows]
    return found


def share_of(
    rows: Sequence[Repetition], hits: Sequence[bool], *, confidence: float = CONFIDENCE
) -> Share | None:
    """The share of hits among graded rows, with an interval that allows for dependent rows.

    Where no cluster holds repetitions of one cell it is `clustered_share`, so a run without
    repetitions has the interval that it always had; else it is that of `interval_over_clusters`.

    Returns:
        None without rows.
    """
    if not any(row.cell or row.cluster for row in rows):
        # Of a million cases, words for a cluster of each would take 250 MB.
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
    """As `share_of`, where each of `n` rows is a cluster of its own."""
    if not n:
        return None
    value = n_hits / n
    low, high = wilson_interval(value * n, n, critical_z(confidence))
    return Share(n, value, low, high)


def mean_interval_of(
    rows: Sequence[Repetition], values: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval:
    """Where the mean of a number of rows lies, with an allowance for dependent rows.

    Args:
        rows: Those that have it; none where each is a cluster of its own.
        values: What each has.
        confidence: 0 to 1.

    Returns:
        Infinite for fewer than two values. Where all are 0 or one other value, that of their share;
        never beyond 0, nor beyond the range seen where that holds the mean at this confidence.
    """
    ends = possible_range(values)
    is_rate = len({0.0, *values}) < 3 and len(values) > 1  # noqa: PLR2004 - 0 and the other
    if is_rate and (share := share_of(rows, [*map(bool, values)], confidence=confidence)):
        return Interval(*sorted((ends.low or ends.high) * at for at in (share.low, share.high)))
    if any(row.cell or row.cluster for row in rows):
        of_clusters = [*zip(clusters_of(rows), values, strict=True)]
        found = clustered_mean_interval(of_clusters, ends=ends, confidence=confidence)
    else:
        found = mean_interval(values, ends=ends, confidence=confidence)
    if found == NOTHING_KNOWN:
        return found
    is_few = 0.5 ** len(values) > (1 - confidence) / 2  # all may lie on one side of the mean
    low = found.low if is_few and ends.low else max(found.low, ends.low)
    high = found.high if is_few and ends.high else min(found.high, ends.high)
    return Interval(low, high)


class SolvedChange(NamedTuple):
    """How many of some pairs are solved on one side alone, and where the rate's change lies."""

    n_gained: int
    n_lost: int
    interval: Interval


def solved_change(
    pairs: Sequence[tuple[Repetition, Repetition]],
    clusters: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> SolvedChange:
    """What becomes of the solved rate from the first to the second of pairs.

    The interval is that of independent pairs, made wide enough for dependent ones.

    Args:
        pairs: Both rated; at least one.
        clusters: Of each pair; None: as of `clusters_of`.
        confidence: 0 to 1.
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
    """Where the change of a mean lies, of pairs of values and the cluster of each."""
    changes = [(own, new - base) for own, (base, new) in zip(clusters, both, strict=True)]
    ends = possible_change(value for pair in both for value in pair)
    return clustered_mean_interval(changes, ends=ends, confidence=confidence)


_SHRINKAGE = 4.0


def interval_over_clusters(
    clusters: Sequence[tuple[float, float]], n: int, confidence: float
) -> tuple[float, float]:
    """Bounds of the mean of clusters whose values are shares.

    It is Wilson's interval for the effective number of cases: as many independent ones as would
    scatter as the clusters do, never more than there are, with Student's t for the number of
    clusters. How far the clusters scatter is itself hard to tell where few of them show the rarer
    outcome: one cell that fails beside 19 that never do may be a cell that always fails. So the
    scatter seen is averaged with the greatest that there can be, that of clusters which count once
    each, with weights `J^2` and 4 for the `J` clusters that the rarer outcome is spread over. Where
    all clusters agree, they count once each.

    Of 2,000 simulated runs (chances of cells drawn from a beta distribution, correlations of 0.1 to
    0.8, 3 to 10 repetitions) 95 % intervals held a solved rate of 0.3 to 0.7 in 93.6 to 97.0 % with
    20 to 100 cells and in 96.5 to 98.8 % with 10; of 0.05, 0.1, 0.9 or 0.95 in 94.2 to 98.7 % with
    20 to 100 and 97.0 to 99.3 % with 10, where the scatter as seen holds it in 87.4 % at worst.
    They held pass@k and pass^k between 0.05 and 0.95 in 92.6 to 99.0 % with 20 to 100 cells. Where
    they fail: 10 cells of which 8 solve 9 in 10 and the others nothing (90 %), and shares that less
    than one cell in twice their number shows (85 % for 0.008 of 20).

    Args:
        clusters: Of each its weight, a number of cases or cells, and its value.
        n: Cases in all.
        confidence: 0 to 1.

    Source: J. N. K. Rao, A. J. Scott, A simple method for the analysis of clustered binary data,
        Biometrics 48 (1992) 577-585; E. L. Korn, B. I. Graubard, Confidence intervals for
        proportions with small expected number of positive counts estimated from survey data,
        Survey Methodology 24 (1998) 193-201; E. Miller, Adding error bars to evals, arXiv
        2411.00640 (2024), clustered standard errors. L. Kish, Survey sampling (1965): how many
        clusters of equal weight those of unequal weight are worth. The average is our own.
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
    """Over how many clusters an amount above 0 is spread: their number where each has the same.

    Source: L. Kish, as above.
    """
    most = max(amounts)  # of which all are parts, since a chance of 1e-200 squared is 0
    return math.fsum(amount / most for amount in amounts) ** 2 / math.fsum(
        (amount / most) ** 2 for amount in amounts
    )


MAJORITY = "majority"
_PASS = re.compile(r"pass(?P<how>[@^])(?P<k>[1-9][0-9]{0,5})")


def figures_of_cells(n: int) -> tuple[str, ...]:
    """What is shown of cells of `n` repetitions; nothing of one repetition."""
    return ("pass@1", f"pass@{n}", f"pass^{n}", MAJORITY) if n > 1 else ()


def repetitions_of(figure: str) -> int | None:
    """How many graded repetitions a figure of cells takes of a cell: k, or 1 of `majority`.

    None for what is no such figure.
    """
    if figure == MAJORITY:
        return 1
    found = _PASS.fullmatch(figure)
    return int(found["k"]) if found is not None else None


def pass_at(k: int, n: int, c: int) -> float:
    """The chance that of `k` of a cell's `n` >= k repetitions, drawn at random, one is solved.

    An unbiased estimate of `1 - (1 - p)^k` for a cell that is solved with chance p.

    Args:
        k: At least 1.
        n: Graded repetitions.
        c: Of these, solved.

    Source: M. Chen et al., Evaluating large language models trained on code, arXiv 2107.03374
        (2021), section 2.1.
    """
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_all(k: int, n: int, c: int) -> float:
    """The chance that `k` of a cell's `n` >= k repetitions, drawn at random, are all solved.

    An unbiased estimate of `p^k`.

    Source: S. Yao et al., tau-bench: a benchmark for tool-agent-user interaction in real-world
        domains, arXiv 2406.12045 (2024).
    """
    return math.comb(c, k) / math.comb(n, k)


class _Tally(NamedTuple):
    """What became of a cell's repetitions: `n_graded` of `n`, and of these `n_solved`."""

    n: int
    n_graded: int
    n_solved: int


def _tallies(repetitions: Iterable[tuple[str, Outcome]]) -> dict[str, _Tally]:
    """Of each cell; a repetition is its cell and its outcome."""
    return {
        cell: _Tally(len(own), sum(each in RATED for each in own), own.count("solved"))
        for cell, own in by_key(repetitions).items()
    }


def _value(figure: str, cell: _Tally) -> float | None:
    """What a cell says to a figure; None where too few of its repetitions were graded."""
    if figure == MAJORITY:
        return float(2 * cell.n_solved > cell.n_graded) if 2 * cell.n_graded > cell.n else None
    k = repetitions_of(figure)
    assert k is not None
    if cell.n_graded < k:
        return None
    return (pass_at if "@" in figure else pass_all)(k, cell.n_graded, cell.n_solved)


class CellShare(NamedTuple):
    """A figure over cells.

    Attributes:
        value: Mean over the cells that it counts.
        n: These cells, at least one.
        n_left_out: Cells of which too few repetitions were graded.
        interval: Of `value`, for other cells of the kind; of one cell alone, for that cell. Where a
            mark names clusters, for other draws of these cells, and infinite for `majority` and for
            k above half of the repetitions: no interval that was tried holds there.
    """

    value: float
    n: int
    n_left_out: int
    interval: Interval


def cell_share(
    figure: str, rows: Sequence[Repetition], *, confidence: float = CONFIDENCE
) -> CellShare | None:
    """A figure of cells; each counts once, however many of its repetitions were graded.

    Args:
        figure: `pass@K`, `pass^K` or `majority`: cells of which more than half of the graded
            repetitions are solved, where more than half were graded.
        rows: All repetitions of the cells, also those that were not graded.
        confidence: Of the interval.

    Returns:
        None where no cell has enough graded repetitions.
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
    """Bounds for one cell: what those of its chance to be solved come to."""
    k = repetitions_of(figure)
    assert k is not None
    chances = wilson_interval(cell.n_solved, cell.n_graded, critical_z(confidence))
    low, high = (1 - (1 - p) ** k if "@" in figure else p**k for p in chances)
    # The estimate is 0 or 1 where k leaves it no choice, whatever the chance.
    return min(low, value), max(high, value)


def _draws_tell(figure: str, cells: Iterable[_Tally]) -> bool:
    """Whether repetitions that draw anew tell how sure a figure is: k is half of them at most."""
    k = repetitions_of(figure)
    return figure != MAJORITY and all(2 * (k or 1) <= cell.n_graded for cell in cells)


def _moves(
    figure: str,
    repetitions: Iterable[tuple[str, Outcome]],
    tallies: Mapping[str, _Tally],
    known: Mapping[str, float],
) -> list[float]:
    """How far each repetition moves a mean over cells, to first order; their sum is 0.

    Where repetitions draw anew, they are what there is to sample. One moves its cell's figure by
    the slope of `1 - (1 - p)^k`, or of `p^k`, at the cell's share of solved ones.

    Source: as the delete-one jackknife of a U-statistic; W. Hoeffding, A class of statistics with
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
    """How a figure of cells changed, cell by cell.

    Attributes:
        base: The figure of the baseline, over the cells that both runs have.
        new: That of the run.
        n: These cells, at least one.
        n_left_out: Cells of which too few repetitions were graded in either run.
        interval: Of `new - base`.
        alike: Whether no cell moved.
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
    """How a figure of cells changed between two runs; see `cell_share`.

    A cell counts by its repetitions that both runs have; each run's own grades say its n.

    Args:
        figure: As of `cell_share`.
        pairs: The same repetition in both runs, graded or not.
        confidence: Of the interval.

    Returns:
        None where no cell has enough graded repetitions in both.
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
    """Of each repetition its cluster and how far it moved the figure; empty if they do not tell."""
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
