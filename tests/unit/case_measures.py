"""Measures of cases as rows, to compare columns with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from pytest_ultrapar.analysis.measures import Kind, Measures
from pytest_ultrapar.records import GRADED
from pytest_ultrapar.store.tables import Spent
from pytest_ultrapar.store.timing import MeasuredPart, Span, is_completed

NO_SPAN = (math.nan, math.nan)
WHOLE_RUN = MeasuredPart()
NOTHING = Spent(started_at_us=0, ended_at_us=0)


class Row(NamedTuple):
    """One graded case, with the fields of `Kind` and of the columns of `Measures`."""

    suite: str
    model: str
    names: tuple[str, ...]
    outcome: str
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
    own: tuple[str, ...] = ()

    @property
    def timed(self):
        return self.completed and self.span is not None


def measure_case(case, grade, spent, *, summary_by, part=WHOLE_RUN, cost=None, cell="", own=()):
    spent = spent or NOTHING
    n_attempts = spent.n_attempts or 0
    span = None if spent.end_s is None else Span(spent.first_send_s, spent.end_s)
    is_measured = span is not None and part.holds(case.case_id, spent.started_at_us or 0)
    return Row(
        suite=case.suite,
        model=case.model,
        names=tuple(case.value_of(name) for name in summary_by),
        outcome=grade.outcome,
        completed=is_completed(grade.outcome, n_attempts),
        span=span if is_measured else None,
        service_s=spent.service_s or 0.0,
        duration_s=spent.duration_s or 0.0,
        n_attempts=n_attempts,
        tokens_in=spent.sent_in,
        tokens_out=spent.sent_out,
        scores=grade.scores if grade.outcome in GRADED else {},
        serial_span=span if case.case_id in part.serial_sample else None,
        cluster=case.cluster,
        cost=cost,
        cell=cell,
        own=own,
    )


def extend(measures, rows):
    rows = list(rows)
    kinds = [
        Kind(
            **{name: getattr(one, name) for name in Kind._fields if name != "scored"},
            scored=tuple(one.scores),
        )
        for one in rows
    ]
    columns = {name: [getattr(one, name) for one in rows] for name in ("service_s", "duration_s")}
    columns["n_attempts"] = [one.n_attempts for one in rows]
    named = {"sent_in": "tokens_in", "sent_out": "tokens_out", "units": "cost"}
    for column, name in named.items():
        columns[column] = [-1 if (n := getattr(one, name)) is None else n for one in rows]
    for first, end, name in (
        ("first_send_s", "end_s", "span"),
        ("serial_first_s", "serial_end_s", "serial_span"),
    ):
        spans = [getattr(one, name) or NO_SPAN for one in rows]
        columns[first], columns[end] = [s for s, _ in spans], [e for _, e in spans]
    measures.extend(kinds, columns, chain.from_iterable(one.scores.values() for one in rows))


def measures_of(rows):
    measures = Measures()
    extend(measures, rows)
    return measures
