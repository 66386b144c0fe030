"""The figures of each graded case, in columns: a list of them takes five times as much; pure."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pytest_ultrapar.records import GRADED, Outcome
from pytest_ultrapar.store.tables import Spent
from pytest_ultrapar.store.timing import MeasuredPart, Span, is_completed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_ultrapar.records import Case, Grade

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    K = TypeVar("K", bound=Hashable)


WHOLE_RUN = MeasuredPart()
_NOTHING = Spent(started_at_us=0, ended_at_us=0)


class CaseMeasure(NamedTuple):
    """One graded case.

    Attributes:
        names: The case's values of the names that the summary counts by, as text.
        cell: As `repetitions.cells_of` calls it; empty where it shares it with no other case.
        span: When it ran, monotonic seconds; None if it sent nothing or does not count in the
            makespan (its episode is of an earlier, interrupted part of the run, or of the serial
            sample).
        completed: Whether it was answered; see `timing.is_completed`.
        serial_span: When it ran, for a case of the serial sample.
        cluster: `Case.cluster`.
        cost: Units (`pool.money`) of its requests, as far as known; like their number and tokens,
            without those to roles.
    """

    case_id: str
    suite: str
    model: str
    names: tuple[str, ...]
    outcome: Outcome
    completed: bool
    span: Span | None
    service_s: float
    duration_s: float
    n_attempts: int
    tokens_in: int | None
    tokens_out: int | None
    scores: Mapping[str, float]
    serial_span: Span | None = None
    cluster: str | None = None
    cost: int | None = None
    cell: str = ""

    @property
    def timed(self) -> bool:
        """Whether it counts in throughput and latencies."""
        return self.completed and self.span is not None


def measure_case(
    case: Case,
    grade: Grade,
    spent: Spent | None,
    *,
    summary_by: Sequence[str],
    part: MeasuredPart = WHOLE_RUN,
    cost: int | None = None,
    cell: str = "",
) -> CaseMeasure:
    """The measure of one graded case.

    Args:
        case: The planned case.
        grade: The one that stands.
        spent: By the episode that it is about, if any.
        summary_by: `model`, `suite`, `repeat` or names of parameters.
        part: Of the run, which counts in the makespan.
        cost: Units of the episode's requests, as far as known.
        cell: As `repetitions.cells_of` calls it.
    """
    spent = spent or _NOTHING
    n_attempts, span = spent.n_attempts or 0, spent.span
    is_measured = span is not None and part.holds(case.case_id, spent.started_at_us or 0)
    return CaseMeasure(
        case_id=case.case_id,
        suite=case.suite,
        model=case.model,
        names=tuple([case.value_of(name) for name in summary_by]),
        outcome=grade.outcome,
        completed=is_completed(grade.outcome, n_attempts),
        span=span if is_measured else None,
        service_s=spent.service_s or 0.0,
        duration_s=spent.duration_s or 0.0,
        n_attempts=n_attempts,
        tokens_in=spent.sent_tokens[0],
        tokens_out=spent.sent_tokens[1],
        scores=grade.scores if grade.outcome in GRADED else {},
        serial_span=span if case.case_id in part.serial_sample else None,
        cluster=case.cluster,
        cost=cost,
        cell=cell,
    )


class Kind(NamedTuple):
    """What many measures have alike; `scored` are the names of their scores."""

    suite: str
    model: str
    names: tuple[str, ...]
    outcome: Outcome
    completed: bool
    cluster: str | None
    cell: str
    scored: tuple[str, ...]


class Repeated(NamedTuple):
    """A measure as figures of cells take it; `case_id` is a text that no other one has."""

    case_id: str
    outcome: Outcome
    cell: str
    cluster: str | None


_SECONDS = ("first_send_s", "end_s", "service_s", "duration_s")
_OF_SAMPLE = ("serial_first_s", "serial_end_s", "serial_s")
_NUMBERS = ("number", "kind", "n_attempts", "tokens_in", "tokens_out", "cost", "scores_at")
_ROW = np.dtype(
    [*[(name, "f8") for name in (*_SECONDS, *_OF_SAMPLE)], *[(name, "i8") for name in _NUMBERS]]
)
"""Of a time that is not known NaN, of a number -1."""
_NO_SPAN = (math.nan, math.nan)
_SPANS = (("first_send_s", "end_s", "span"), ("serial_first_s", "serial_end_s", "serial_span"))


class Measures:
    """The measures of graded cases, in the order in which they were added.

    What is selected of them has the numbers of its own rows, and shares what they have alike.

    Args:
        measures: Those to begin with.
    """

    def __init__(self, measures: Iterable[CaseMeasure] = ()) -> None:
        self.kinds: list[Kind] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._scores = array("d")
        self.rows = np.empty(0, _ROW)
        self.extend(measures)

    def extend(self, measures: Iterable[CaseMeasure]) -> None:
        """Take measures."""
        given = list(measures)
        if not given:
            return
        columns = dict(zip(CaseMeasure._fields, zip(*given, strict=True), strict=True))
        columns["scored"] = tuple(map(tuple, columns["scores"]))
        numbers, n = self._numbers, len(self.rows)
        kinds = zip(*[columns[name] for name in Kind._fields], strict=True)
        # In place: a million rows come in slices, and copies of all for each take seconds.
        self.rows.resize(n + len(given), refcheck=False)
        rows = self.rows[n:]
        rows["number"] = np.arange(n, n + len(given))
        rows["kind"] = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
        self.kinds += [Kind(*kind) for kind in [*numbers][len(self.kinds) :]]
        for name in ("service_s", "duration_s", "n_attempts"):
            rows[name] = columns[name]
        for name in ("tokens_in", "tokens_out", "cost"):
            rows[name] = [-1 if one is None else one for one in columns[name]]
        for first, end, name in _SPANS:
            spans = chain.from_iterable([one or _NO_SPAN for one in columns[name]])
            rows[first], rows[end] = np.fromiter(spans, float).reshape(-1, 2).T
        rows["serial_s"] = math.nan
        ends = np.cumsum([len(self._scores), *map(len, columns["scores"])])
        rows["scores_at"] = ends[:-1]
        for scores in columns["scores"]:
            self._scores.extend(scores.values())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """A column of `_ROW`."""
        return self.rows[name]

    def of(self, chosen: Mask | NDArray[np.int64]) -> Measures:
        """Those at some positions; these themselves where all are chosen."""
        if chosen.dtype == bool and chosen.all():
            return self
        found = copy(self)
        found.rows = self.rows[chosen]
        return found

    def told(self, says: Callable[[Kind], bool]) -> Mask:
        """By row, what a function says of its kind."""
        found: Mask = np.array([says(kind) for kind in self.kinds], bool)[self.rows["kind"]]
        return found

    @property
    def completed(self) -> Mask:
        """By row, as `CaseMeasure` has it."""
        return self.told(lambda kind: kind.completed)

    @property
    def ran(self) -> Mask:
        """By row, whether it has a span."""
        found: Mask = ~np.isnan(self.rows["end_s"])
        return found

    @property
    def timed(self) -> Mask:
        """By row, as `CaseMeasure` has it."""
        return self.completed & self.ran

    @property
    def spans(self) -> Floats:
        """First sends and ends, a row each; NaN where there is none."""
        return np.column_stack([self.rows["first_send_s"], self.rows["end_s"]])

    def grouped(self, key: Callable[[Kind], K]) -> dict[K, Measures]:
        """Measures by what a function says of their kinds."""
        numbers: dict[K, int] = {}
        of_kind = [numbers.setdefault(key(kind), len(numbers)) for kind in self.kinds]
        own = np.array(of_kind, np.int64)[self.rows["kind"]]
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], np.arange(len(numbers) + 1))
        return {
            name: self.of(order[ends[at] : ends[at + 1]])
            for name, at in numbers.items()
            if ends[at] < ends[at + 1]
        }

    def total(self, name: str) -> int | None:
        """The sum of a column of numbers; None where none of them is known."""
        column = self.rows[name]
        known = column[column >= 0]
        return int(known.sum()) if len(known) else None

    def scores(self) -> Iterator[tuple[tuple[str, ...], Floats]]:
        """Names of scores, and the values of some cases that have just these, a row each."""
        values = np.frombuffer(self._scores) if self._scores else np.empty(0)
        for names, own in self.grouped(lambda kind: kind.scored).items():
            if names:
                yield names, values[own.rows["scores_at"][:, None] + np.arange(len(names))]

    def cells(self) -> Counter[str]:
        """How many there are of each cell."""
        found: Counter[str] = Counter()
        numbers = np.bincount(self.rows["kind"], minlength=len(self.kinds))
        for kind, n in zip(self.kinds, numbers.tolist(), strict=True):
            found[kind.cell] += n
        return found

    def repeated(self) -> Iterator[Repeated]:
        """Each as figures of cells take it."""
        numbers, kinds = (self.rows[name].tolist() for name in ("number", "kind"))
        for number, at in zip(numbers, kinds, strict=True):
            kind = self.kinds[at]
            yield Repeated(str(number), kind.outcome, kind.cell, kind.cluster)
