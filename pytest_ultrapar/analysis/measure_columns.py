"""The measures of very many cases in columns, which take a fifth of the memory; pure.

What is selected of them are positions, so figures of parts of a run take no measures with them.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple, cast, overload

from pytest_ultrapar.analysis.statistics import CaseMeasure, ManyMeasures
from pytest_ultrapar.store.timing import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.records import Outcome


class _Kind(NamedTuple):
    """What many measures have alike; `scored` are the names of their scores."""

    suite: str
    model: str
    names: tuple[str, ...]
    outcome: Outcome
    completed: bool
    cluster: str | None
    cell: str
    scored: tuple[str, ...]


class _Columns:
    """The columns, in one order; texts and scores one after the other, with where they end.

    Where a time or a number is not known there is NaN or -1.
    """

    def __init__(self) -> None:
        self.kinds: list[_Kind] = []
        self.kind = array("l")
        self.ids = bytearray()
        self.id_ends = array("q", (0,))
        self.scores = array("d")
        self.score_ends = array("q", (0,))
        self.first_send_s, self.end_s = array("d"), array("d")
        self.service_s, self.duration_s = array("d"), array("d")
        self.n_attempts, self.tokens_in = array("q"), array("q")
        self.tokens_out, self.cost = array("q"), array("q")
        self.serial_spans: dict[int, Span] = {}
        self.serial_s: dict[int, float] = {}


class MeasureColumns(ManyMeasures):
    """Measures in the order in which they were added."""

    def __init__(self) -> None:
        self._columns = _Columns()
        self._numbers: dict[_Kind, int] = {}

    def extend(self, measures: Iterable[CaseMeasure]) -> None:
        """Take measures."""
        to = self._columns
        for one in measures:
            kind = _Kind(
                one.suite,
                one.model,
                one.names,
                one.outcome,
                one.completed,
                one.cluster,
                one.cell,
                tuple(one.scores),
            )
            number = self._numbers.setdefault(kind, len(to.kinds))
            if number == len(to.kinds):
                to.kinds.append(kind)
            if one.serial_span is not None:
                to.serial_spans[len(self)] = one.serial_span
            if one.serial_s is not None:
                to.serial_s[len(self)] = one.serial_s
            to.kind.append(number)
            to.ids += one.case_id.encode()
            to.id_ends.append(len(to.ids))
            to.scores.extend(one.scores.values())
            to.score_ends.append(len(to.scores))
            to.first_send_s.append(math.nan if one.span is None else one.span.first_send_s)
            to.end_s.append(math.nan if one.span is None else one.span.end_s)
            to.service_s.append(one.service_s)
            to.duration_s.append(one.duration_s)
            to.n_attempts.append(one.n_attempts)
            to.tokens_in.append(-1 if one.tokens_in is None else one.tokens_in)
            to.tokens_out.append(-1 if one.tokens_out is None else one.tokens_out)
            to.cost.append(-1 if one.cost is None else one.cost)

    def __len__(self) -> int:
        return len(self._columns.kind)

    @overload
    def __getitem__(self, at: int) -> CaseMeasure: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[CaseMeasure]: ...
    def __getitem__(self, at: int | slice) -> CaseMeasure | Sequence[CaseMeasure]:
        if isinstance(at, slice):
            return self.of(range(len(self))[at])
        return _row(self._columns, range(len(self))[at])

    def __iter__(self) -> Iterator[CaseMeasure]:
        columns = self._columns
        return (_row(columns, at) for at in range(len(self)))

    def of(self, places: Iterable[int]) -> _Chosen:
        """Those at some positions."""
        return _Chosen(self._columns, array("q", places))

    def keep_serial_times(self, times_s: Mapping[int, float]) -> None:
        """Let measures, by their position, know the seconds that they took one at a time."""
        self._columns.serial_s.update(times_s)


class _Chosen(ManyMeasures):
    """Some measures of columns, by their positions."""

    def __init__(self, columns: _Columns, places: array[int]) -> None:
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> CaseMeasure: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[CaseMeasure]: ...
    def __getitem__(self, at: int | slice) -> CaseMeasure | Sequence[CaseMeasure]:
        if isinstance(at, slice):
            return _Chosen(self._columns, self._places[at])
        return _row(self._columns, self._places[at])

    def __iter__(self) -> Iterator[CaseMeasure]:
        columns = self._columns
        return (_row(columns, at) for at in self._places)

    def of(self, places: Iterable[int]) -> _Chosen:
        """Those at some positions among these."""
        return _Chosen(self._columns, array("q", map(self._places.__getitem__, places)))


def _row(columns: _Columns, at: int) -> CaseMeasure:
    return cast("CaseMeasure", _Row(columns, at))


class _Row:
    """One measure, read attribute by attribute: most figures ask for one or two of eighteen.

    It has all that a `CaseMeasure` has, but is none: nobody can change it.
    """

    __slots__ = ("_at", "_of")

    def __init__(self, of: _Columns, at: int) -> None:
        self._of = of
        self._at = at

    @property
    def _kind(self) -> _Kind:
        return self._of.kinds[self._of.kind[self._at]]

    @property
    def case_id(self) -> str:
        own, at = self._of, self._at
        return own.ids[own.id_ends[at] : own.id_ends[at + 1]].decode()

    @property
    def suite(self) -> str:
        return self._kind.suite

    @property
    def model(self) -> str:
        return self._kind.model

    @property
    def names(self) -> tuple[str, ...]:
        return self._kind.names

    @property
    def outcome(self) -> Outcome:
        return self._kind.outcome

    @property
    def completed(self) -> bool:
        return self._kind.completed

    @property
    def cluster(self) -> str | None:
        return self._kind.cluster

    @property
    def cell(self) -> str:
        return self._kind.cell

    @property
    def scores(self) -> dict[str, float]:
        scored, own, at = self._kind.scored, self._of, self._at
        values = own.scores[own.score_ends[at] : own.score_ends[at + 1]]
        return dict(zip(scored, values, strict=True))

    @property
    def span(self) -> Span | None:
        first_send_s = self._of.first_send_s[self._at]
        if math.isnan(first_send_s):
            return None
        return Span(first_send_s, self._of.end_s[self._at])

    @property
    def timed(self) -> bool:
        return self._kind.completed and not math.isnan(self._of.first_send_s[self._at])

    @property
    def service_s(self) -> float:
        return self._of.service_s[self._at]

    @property
    def duration_s(self) -> float:
        return self._of.duration_s[self._at]

    @property
    def n_attempts(self) -> int:
        return self._of.n_attempts[self._at]

    @property
    def tokens_in(self) -> int | None:
        return _known(self._of.tokens_in[self._at])

    @property
    def tokens_out(self) -> int | None:
        return _known(self._of.tokens_out[self._at])

    @property
    def cost(self) -> int | None:
        return _known(self._of.cost[self._at])

    @property
    def serial_span(self) -> Span | None:
        return self._of.serial_spans.get(self._at)

    @property
    def serial_s(self) -> float | None:
        return self._of.serial_s.get(self._at)


def _known(count: int) -> int | None:
    return None if count < 0 else count
