"""Measures in columns: what goes in comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.measure_columns import MeasureColumns
from pytest_ultrapar.analysis.statistics import (
    CaseMeasure,
    grouped,
    run_statistics,
    where,
    with_serial_times,
)
from pytest_ultrapar.store.timing import Span

SECONDS = st.floats(0, 1e6)
SPANS = st.none() | st.tuples(SECONDS, SECONDS).map(lambda pair: Span(*sorted(pair)))
COUNTS = st.none() | st.integers(0, 2**40)
MEASURES = st.lists(
    st.builds(
        CaseMeasure,
        case_id=st.text(min_size=1, max_size=5),
        suite=st.sampled_from("ab"),
        model=st.sampled_from("mn"),
        names=st.tuples(st.sampled_from("xy")),
        outcome=st.sampled_from(["solved", "unsolved", "infra"]),
        completed=st.booleans(),
        span=SPANS,
        service_s=SECONDS,
        duration_s=SECONDS,
        n_attempts=st.integers(0, 9),
        tokens_in=COUNTS,
        tokens_out=COUNTS,
        scores=st.dictionaries(st.sampled_from("pq"), st.floats(0, 1)),
        serial_span=SPANS,
        serial_s=st.none(),
        cluster=st.none() | st.sampled_from("cd"),
        cost=COUNTS,
        cell=st.sampled_from(["", "e"]),
    ),
    max_size=12,
)


def plain(measures):
    names = CaseMeasure._fields
    return [CaseMeasure(*(getattr(each, name) for name in names)) for each in measures]


@given(MEASURES)
def test_what_goes_in_comes_out(measures):
    columns = MeasureColumns()
    columns.extend(measures)
    assert plain(columns) == measures
    assert [each.timed for each in columns] == [each.timed for each in measures]
    assert plain(columns[1:4]) == measures[1:4]
    chosen = where(columns, lambda each: each.model == "m")
    wanted = [each for each in measures if each.model == "m"]
    assert plain(chosen) == wanted
    assert plain(where(chosen, lambda each: each.suite == "a")) == [
        each for each in wanted if each.suite == "a"
    ]
    by_names = grouped(columns, lambda each: each.names)
    assert {key: plain(own) for key, own in by_names.items()} == grouped(
        measures, lambda each: each.names
    )
    assert plain(with_serial_times(columns)) == plain(with_serial_times(measures))


@pytest.mark.slow
@given(MEASURES)
def test_statistics_are_the_same(measures):
    columns = MeasureColumns()
    columns.extend(measures)
    for chosen in (lambda _: True, lambda each: each.model == "m"):
        both = [
            run_statistics(one, n_planned=len(measures), mode="ultra", chosen=chosen)
            for one in (measures, columns)
        ]
        assert both[0] == both[1]
