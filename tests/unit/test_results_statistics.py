from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_ultrapar.analysis.statistics import (
    RESOLUTION_S,
    mean_scores,
    part_time,
    quantile,
    run_statistics,
    wilson_interval,
)
from pytest_ultrapar.records import Case, EpisodeEnded, Grade
from pytest_ultrapar.store.journal import Position
from pytest_ultrapar.store.journal_history import CaseHistory, EpisodeEntry
from pytest_ultrapar.store.tables import parameter_columns, spent_by
from tests.unit import finished_run
from tests.unit.case_measures import measure_case, measures_of

times = st.floats(0, 1e4, allow_nan=False)


def attempt(ready_s, lease_s, send_s, end_s, outcome="ok"):
    sent = finished_run.attempt(ready_s, end_s, outcome=outcome)
    return replace(sent, t_lease_s=lease_s, t_send_s=send_s)


def episode(attempts, duration_s, ending="returned", **fields):
    return EpisodeEnded("c", "gw0", ending, 1, 2, duration_s, attempts=attempts, **fields)


def measure(start_s, end_s, outcome="solved", **scores):
    case = Case(0, "c", "n", "phase51", "m", 2, {"flaw": "order"}, 1)
    ended = episode(
        [attempt(start_s, start_s, start_s, end_s)],
        end_s - start_s,
        "infra" if outcome == "infra" else "returned",
    )
    grade = Grade("c", "gw0", outcome, "passed", 5, scores=scores)
    names = ("model", "repeat", "flaw", "other")
    return measure_case(case, grade, spent_by(ended), summary_by=names)


def test_service_time_excludes_waiting():
    attempts = [
        attempt(1.1, 1.0, 1.1, 1.2, "rate"),
        attempt(2.2, 3.2, 3.2, 4.2),
        attempt(4.2, 4.7, 4.7, 5.7),
    ]
    # 4.7 s: 0.1 s for a refusal, 1.0 s of back-off, 1.5 s of waiting for two leases.
    ended = episode(attempts, 4.7, backoff_s=1.0)
    assert spent_by(ended).service_s == pytest.approx(2.1)


def test_span_ends_with_the_episode_and_not_with_its_last_answer():
    def span(*attempts):
        spent = spent_by(episode(list(attempts), 4.0))
        return spent.first_send_s, spent.end_s

    assert span(attempt(1, 1, 1.5, 2)) == (1.5, 5.0)
    assert span(attempt(1, 1, 1.5, 9)) == (1.5, 9.0)
    # The episode returned its first lease, so the start is unknown.
    assert span(attempt(3, 3.5, 3.6, 4)) == (3.6, 4.0)
    assert span() == (None, None)


def everything(_):
    return True


@given(st.lists(st.tuples(times, times, st.booleans()), max_size=30))
def test_time_of_all_cases_is_the_makespan(items):
    measures = [
        measure(start, start + length, "solved" if done else "infra")
        for start, length, done in items
    ]
    took = part_time(measures_of(measures), everything)
    if not any(done for _, _, done in items):
        assert took is None
        return
    start = min(start for start, _, _ in items)
    end = max(start + length for start, length, _ in items)
    assert took.seconds == max(end - start, RESOLUTION_S)


def of_part(items, suite=None, model=None):
    def chosen(each):
        return suite in {None, each.suite} and model in {None, each.model}

    own = [measure(*span)._replace(suite=s, model=m) for *span, s, m in items]
    return part_time(measures_of(own), chosen)


@given(st.lists(st.tuples(times, times, st.sampled_from("ab")), min_size=1, max_size=30))
def test_times_of_suites_with_the_same_models_add_up_to_the_makespan(items):
    runs = [(start, start + length, suite, "m") for start, length, suite in items]
    parts = [of_part(runs, suite) for suite in {suite for *_, suite in items}]
    assert sum(part.seconds for part in parts) == pytest.approx(of_part(runs).seconds, abs=1e-5)


def test_pause_of_the_whole_run_is_charged_once():
    turns = [(0, 1, "s", "a"), (3, 4, "s", "b"), (6, 9, "s", "a"), (7, 8, "s", "b")]
    # Nothing runs from 1 to 3 before b begins, nor from 4 to 6 before a begins.
    assert of_part(turns, model="b").seconds == 4
    assert of_part(turns, model="a").seconds == 6


def test_models_in_parallel_do_not_share_their_time():
    runs = [(0, 4, "s", "m"), (1, 3, "s", "other")]
    assert of_part(runs, model="other").seconds == 2.0
    assert of_part(runs, model="m").seconds == 4.0


def test_statistics_of_a_run_are_complete():
    measures = [
        measure(0, 2, s=1.0),
        measure(0, 4, "partial", s=0.5),
        measure(1, 3, "infra"),
        measure(2, 4, "error"),
    ]
    statistics = run_statistics(measures_of(measures), n_planned=6, mode="ultra")
    assert statistics.n_final == 4
    assert statistics.coverage == pytest.approx(2 / 6)
    assert (statistics.n_timed, statistics.makespan_s) == (3, 4.0)
    assert statistics.throughput == 0.75
    assert (statistics.serial_s, statistics.speedup) == (8.0, 2.0)
    assert statistics.latency.p50_s == 2.0
    assert (statistics.scores["s"].mean, statistics.scores["s"].n) == (0.75, 2)


def test_skipped_cases_do_not_lower_the_coverage():
    case = Case(0, "c", "n", "phase51", "m", 0, {}, 1)
    skipped = measure_case(
        case, Grade("c", "gw0", "skipped", "skipped", 5), None, summary_by=("model",)
    )
    assert run_statistics(measures_of([skipped]), n_planned=1, mode="ultra").coverage == 1.0
    both = measures_of([skipped, measure(0, 1)])
    statistics = run_statistics(both, n_planned=2, mode="ultra")
    assert statistics.coverage == 1.0
    assert statistics.n_timed == 1


@given(st.permutations(range(3)))
def test_scores_keep_the_order_of_the_tests(order):
    measures = [
        measure(0.0, 1.0, steps=1.0, reachable=1.0, turns=4.0),
        measure(0.0, 1.0, steps=0.5, obeyed=1.0, reachable=1.0, turns=6.0),
        measure(0.0, 1.0, "unsolved", turns=2.0),
    ]
    run = measures_of(measures[at] for at in order)
    scores = run_statistics(run, n_planned=3, mode="ultra").scores
    assert list(scores) == ["steps", "obeyed", "reachable", "turns"]
    assert (scores["steps"].mean, scores["turns"].n) == (0.75, 3)


def test_wilson_interval_matches_published_values():
    # Newcombe, Stat. Med. 17 (1998) 857-872, table I, method 3.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 5000), st.data())
def test_wilson_interval_contains_the_share(n, data):
    hits = data.draw(st.integers(0, n))
    low, high = wilson_interval(hits, n)
    assert 0.0 <= low <= hits / n <= high <= 1.0
    assert low < high


@given(st.lists(times, min_size=1).map(sorted), st.floats(0, 1))
def test_quantile_lies_within_the_sample(ordered, share):
    value = quantile(ordered, share)
    assert ordered[0] <= value <= ordered[-1] or math.isclose(value, ordered[-1])
    assert quantile(ordered, 0) == ordered[0]
    assert quantile(ordered, 1) == ordered[-1]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "int64"),
        ([1, 2.5], "double"),
        ([True, False], "bool"),
        ([True, 1], "string"),
        (["a", 1], "string"),
        ([None], "string"),
        ([2**63], "string"),
        ([-(2**63)], "int64"),
    ],
)
def test_parameter_column_has_a_type_that_fits_all_values(values, kind):
    cases = [Case(0, "c", "n", "s", "m", 0, {"p": value}, 1) for value in values]
    (column,) = parameter_columns(cases)
    assert (column.name, column.kind, column.nullable) == ("param.p", kind, True)


def grade(outcome, at_us):
    return Grade("c", "gw0", outcome, "passed", at_us)


def entry(at_us, ending="returned"):
    return EpisodeEntry(at_us, Position("s", at_us, 1), ending)


@pytest.mark.parametrize("order", [1, -1])
def test_history_last_grade_counts_but_infra_replaces_no_grade(order):
    grades = [grade("infra", 1), grade("unsolved", 5), grade("solved", 7), grade("infra", 9)]
    history = CaseHistory()
    for each in grades[::order]:
        history.add_grade(each)
    assert history.grade == grades[2]


def test_history_final_episode_is_the_graded_one():
    history = CaseHistory(grade("solved", 20), [entry(5, "infra"), entry(10), entry(30)])
    assert history.final_episode() == entry(10)
    # The clock was set back, so no episode ended before its grade.
    history = CaseHistory(grade("solved", 2), [entry(5, "interrupted"), entry(10)])
    assert history.final_episode() == entry(10)
    assert CaseHistory(grade("skipped", 2)).final_episode() is None
    assert CaseHistory(None, [entry(1)]).final_episode() is None
    assert CaseHistory(grade("infra", 9), [entry(5, "infra")]).final_episode() == entry(5, "infra")


def test_scores_whose_sum_overflows_have_a_mean():
    given = [measure(0.0, 1.0, score=1e308), measure(0.0, 1.0, score=1e308)]
    assert mean_scores(measures_of(given))["score"].mean == 1e308
