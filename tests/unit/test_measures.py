"""Measures in columns equal a list of measures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.statistics import run_statistics, whole_span
from pytest_ultrapar.store.timing import Span, total_tokens
from tests.unit.case_measures import Row, extend, measures_of

SECONDS = st.floats(0, 1e6)
SPANS = st.none() | st.tuples(SECONDS, SECONDS).map(lambda pair: Span(*sorted(pair)))
COUNTS = st.none() | st.integers(0, 2**40)
MEASURES = st.lists(
    st.builds(
        Row,
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
        cluster=st.none() | st.sampled_from("cd"),
        cost=COUNTS,
        cell=st.sampled_from(["", "e"]),
    ),
    max_size=12,
)


@given(MEASURES, st.integers(0, 12))
def test_columns_equal_a_list(measures, cut):
    columns = measures_of(measures[:cut])
    extend(columns, measures[cut:])
    assert columns.timed.tolist() == [one.timed for one in measures]
    chosen = columns.of(columns.told(lambda kind: kind.model == "m"))
    own = [(number, one) for number, one in enumerate(measures) if one.model == "m"]
    assert chosen["number"].tolist() == [number for number, _ in own]
    assert chosen["duration_s"].tolist() == [one.duration_s for _, one in own]
    assert chosen.total("units") == total_tokens(one.cost for _, one in own)
    assert [(one.outcome, one.cell, one.cluster) for one in chosen.repeated()] == [
        (one.outcome, one.cell, one.cluster) for _, one in own
    ]
    assert {
        name: part["number"].tolist() for name, part in chosen.grouped(lambda k: k.names).items()
    } == {
        names: [number for number, one in own if one.names == names]
        for names in {one.names for _, one in own}
    }
    spans = [one.span for one in measures if one.span is not None]
    wanted = (min(s for s, _ in spans), max(e for _, e in spans)) if spans else None
    assert whole_span(columns) == wanted


@pytest.mark.slow
@given(MEASURES)
def test_statistics_of_a_part_match_its_list(measures):
    found = run_statistics(
        measures_of(measures),
        n_planned=len(measures),
        mode="ultra",
        chosen=lambda kind: kind.model == "m",
    )
    own = [one for one in measures if one.model == "m"]
    assert found.n_final == len(own)
    assert found.counts["infra"] == sum(one.outcome == "infra" for one in own)
    assert found.n_timed == sum(one.timed for one in own)
    assert found.n_attempts == sum(one.n_attempts for one in own)
    for name, mean in found.scores.items():
        values = [one.scores[name] for one in own if name in one.scores]
        assert (mean.n, mean.mean) == (len(values), pytest.approx(sum(values) / len(values)))
    if found.latency is not None:
        assert found.latency.max_s == max(one.duration_s for one in own if one.timed)
