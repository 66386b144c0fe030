"""The measures of cases in columns; a list of objects would take five times as much memory.

All functions are pure.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from pytest_ultrapar.records import GRADED, Outcome
from pytest_ultrapar.store.timing import is_completed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_ultrapar.records import Grade
    from pytest_ultrapar.store.table_rows import Table
    from pytest_ultrapar.store.timing import MeasuredPart

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    K = TypeVar("K", bound=Hashable)


class CaseMeasure(NamedTuple):
    """One case with a final grade, for comparisons of answers and for figures over cells.

    Figures over cells use only the first four fields.

    Attributes:
        case_id: The case's id; for figures over cells, any unique text.
        timed: Whether the case is included in throughput and latencies.
    """

    case_id: str
    outcome: Outcome
    cell: str
    cluster: str | None
    model: str = ""
    scores: Mapping[str, float] = {}
    service_s: float = 0.0
    timed: bool = False


class Kind(NamedTuple):
    """A combination of values that many measures share.

    Attributes:
        names: The case's values for the names in `RunSummary.summary_by`, as text.
        own: The case's test, and the case's values for the names by which the test's results are
            laid out.
        cluster: The case cluster, as in `Case.cluster`.
        cell: The cell's name from `repetitions.cells_of`; empty if the case is alone in its cell.
        scored: The names of the case's scores; empty if it was not graded.
        completed: Whether the case was answered; see `timing.is_completed`.
    """

    suite: str
    model: str
    names: tuple[str, ...]
    own: tuple[str, ...]
    cluster: str | None
    cell: str
    outcome: Outcome
    scored: tuple[str, ...]
    completed: bool


_SCORED = Kind._fields.index("scored")
_SPAN = ("first_send_s", "end_s")
_SERIAL_SPAN = ("serial_first_s", "serial_end_s")
_SECONDS = (*_SPAN, *_SERIAL_SPAN, "service_s", "duration_s", "serial_s")
_NUMBERS = ("number", "kind", "n_attempts", "sent_in", "sent_out", "units", "scores_at")
_ROW = np.dtype([(name, "f8") for name in _SECONDS] + [(name, "i8") for name in _NUMBERS])
"""The fields of a row. An unknown time is NaN; an unknown number is -1.

The span of a case begins with its first send and ends with the case, in seconds on the monotonic
clock. It is unknown if the case sent nothing. It is also unknown for cases that the makespan
excludes: cases of the serial sample, and cases of an earlier, interrupted part of the run.
"""
_NOTHING = {
    **dict.fromkeys(_SPAN, math.nan),
    **dict.fromkeys(("service_s", "duration_s", "n_attempts"), 0),
    **dict.fromkeys(("sent_in", "sent_out", "units"), -1),
}


class Measures:
    """The measures of cases with a final grade, in the order in which they were added.

    A selection of measures has its own rows, but shares the kinds with the original.

    Attributes:
        n_silent: How many graded cases sent no request, not even to a role.
    """

    def __init__(self) -> None:
        self.n_silent = 0
        self.kinds: list[Kind] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._scores = array("d")
        self.rows = np.empty(0, _ROW)

    def take(
        self,
        alike: Sequence[tuple[Any, ...]],
        grades: Sequence[Grade],
        spent: Table,
        part: MeasuredPart,
    ) -> Mask:
        """Add the measures of cases with a final grade; return which of them have a span.

        Args:
            alike: For each case, the fields of its kind from `suite` to `cell`.
            grades: The cases' final grades.
            spent: The figures for the cases' graded episodes, from `TableSet.spent`.
            part: The part of the run that the makespan includes.
        """
        columns = {name: spent[name].fill_null(none).to_numpy() for name, none in _NOTHING.items()}
        n_attempts = columns["n_attempts"].tolist()
        scores = [one.scores if one.outcome in GRADED else {} for one in grades]
        kinds = [
            (*own, one.outcome, tuple(scored), is_completed(one.outcome, n))
            for own, one, scored, n in zip(alike, grades, scores, n_attempts, strict=True)
        ]
        graded = np.array([one.outcome in GRADED for one in grades], bool)
        self.n_silent += int((graded & np.isnan(columns["first_send_s"])).sum())
        sampled = np.array([one.case_id in part.serial_sample for one in grades], bool)
        began_us = spent["started_at"].cast("int64").fill_null(0).to_numpy()
        counts = (began_us >= part.from_us) & ~sampled & (not part.is_nothing)
        for name, own in zip(_SPAN, _SERIAL_SPAN, strict=True):
            columns[own] = np.where(sampled, columns[name], math.nan)
            columns[name] = np.where(counts, columns[name], math.nan)
        self.extend(kinds, columns, [value for one in scores for value in one.values()])
        return cast("Mask", ~np.isnan(columns["end_s"]))

    def extend(
        self,
        kinds: Sequence[tuple[Any, ...]],
        columns: Mapping[str, NDArray[Any] | Sequence[float]],
        scores: Iterable[float],
    ) -> None:
        """Add measures.

        Args:
            kinds: The kind of each measure, as a tuple of the fields of `Kind`.
            columns: The columns of `_ROW` by name, except for columns that are computed here.
            scores: The scores of all measures, one measure after another, each in the order of its
                `Kind.scored`.
        """
        numbers, n = self._numbers, len(self.rows)
        # Resize the array in place. A million rows come in slices, and copying all rows for each
        # slice would take seconds.
        self.rows.resize(n + len(kinds), refcheck=False)
        rows = self.rows[n:]
        rows["number"] = np.arange(n, n + len(kinds))
        rows["kind"] = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
        self.kinds += [Kind(*kind) for kind in [*numbers][len(self.kinds) :]]
        for name, column in columns.items():
            rows[name] = column
        rows["serial_s"] = math.nan
        ends = np.cumsum([len(self._scores), *(len(kind[_SCORED]) for kind in kinds)])
        rows["scores_at"] = ends[:-1]
        self._scores.extend(scores)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """Return a column of `_ROW`."""
        return self.rows[name]

    def of(self, chosen: Mask | NDArray[np.int64]) -> Measures:
        """Return the measures at the chosen positions, or this object itself if all are chosen."""
        if chosen.dtype == bool and chosen.all():
            return self
        found = copy(self)
        found.rows = self.rows[chosen]
        return found

    def told(self, says: Callable[[Kind], bool]) -> Mask:
        """Return for each row whether a function is true for the row's kind."""
        return cast("Mask", np.array([says(kind) for kind in self.kinds], bool)[self.rows["kind"]])

    @property
    def completed(self) -> Mask:
        """For each row, `Kind.completed`."""
        return self.told(lambda kind: kind.completed)

    @property
    def ran(self) -> Mask:
        """For each row, whether it has a span."""
        return cast("Mask", ~np.isnan(self.rows["end_s"]))

    @property
    def timed(self) -> Mask:
        """For each row, the same as `CaseMeasure.timed`."""
        return self.completed & self.ran

    @property
    def spans(self) -> Floats:
        """For each row, when the case first sent a request and when it ended; NaN if unknown."""
        return np.column_stack([self.rows["first_send_s"], self.rows["end_s"]])

    def grouped(self, key: Callable[[Kind], K]) -> dict[K, Measures]:
        """Group the measures by what a function returns for their kinds."""
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
        """Return the sum of the known numbers in a column; None if no number is known."""
        column = self.rows[name]
        known = column[column >= 0]
        return int(known.sum()) if len(known) else None

    def scores(self) -> Iterator[tuple[tuple[str, ...], Measures, Floats]]:
        """Yield each set of score names, the cases with exactly these scores, and their values."""
        values = np.frombuffer(self._scores) if self._scores else np.empty(0)
        for names, own in self.grouped(lambda kind: kind.scored).items():
            if names:
                yield names, own, values[own.rows["scores_at"][:, None] + np.arange(len(names))]

    def cells(self) -> Counter[str]:
        """Count the cases in each cell."""
        found: Counter[str] = Counter()
        numbers = np.bincount(self.rows["kind"], minlength=len(self.kinds))
        for kind, n in zip(self.kinds, numbers.tolist(), strict=True):
            found[kind.cell] += n
        return found

    def each(self, case_ids: Iterable[str]) -> Iterator[CaseMeasure]:
        """Yield the measures one by one; `case_ids` gives their case ids in the same order."""
        for case_id, row, timed in zip(case_ids, self.rows, self.timed.tolist(), strict=True):
            kind, at = self.kinds[row["kind"]], int(row["scores_at"])
            scores = dict(zip(kind.scored, self._scores[at : at + len(kind.scored)], strict=True))
            told = (case_id, kind.outcome, kind.cell, kind.cluster, kind.model, scores)
            yield CaseMeasure(*told, float(row["service_s"]), timed)

    def repeated(self) -> Iterator[CaseMeasure]:
        """Yield each measure with only those fields that figures over cells use."""
        numbers, kinds = (self.rows[name].tolist() for name in ("number", "kind"))
        for number, at in zip(numbers, kinds, strict=True):
            kind = self.kinds[at]
            yield CaseMeasure(str(number), kind.outcome, kind.cell, kind.cluster)
