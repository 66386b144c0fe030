"""Several runs are read as all their cases, each once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_suites.workflow.aggregate import CaseResult, aggregate
from bench_suites.workflow_results.counted import Counted, counted
from bench_suites.workflow_results.merge import each_once, merge
from bench_suites.workflow_results.phase import ALL_PHASES, question
from bench_suites.workflow_results.phase_cells import phase_cells
from bench_suites.workflow_results.run_cases import RunCases
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.store.cases_file import Shared
from tests.unit.workflow_results_runs import bench_case

OUTCOMES = ["solved", "partial", "unsolved", "infra", "error", "never ran"]

_results = st.builds(
    CaseResult,
    model=st.sampled_from(["a", "b"]),
    prompt_type=st.sampled_from(["optimal", "cot"]),
    tool_success_rate=st.sampled_from([0.5, 0.8]),
    difficulty=st.just("easy"),
    task_type=st.sampled_from(["simple_task", "basic_task"]),
    outcome=st.sampled_from(OUTCOMES),
    duration_s=st.floats(0, 1e3),
    kind=st.sampled_from([None, "timeout", "other", "context_length"]),
    scores=st.fixed_dictionaries(
        {"workflow": st.floats(0, 1)},
        optional={"assisted": st.sampled_from([0.0, 1.0]), "assisted_turns": st.integers(0, 9)},
    ),
)
_cases = st.builds(
    bench_case,
    suite=st.sampled_from([phase.suite for phase in ALL_PHASES if phase.number != "5.3"]),
    outcome=st.sampled_from(OUTCOMES),
    model=st.sampled_from(["a", "qwen2.5-7b"]),
    prompt_type=st.sampled_from(["optimal", "cot"]),
    rate=st.sampled_from([0.5, 0.8]),
    difficulty=st.sampled_from(["easy", "medium"]),
    run_id=st.sampled_from(["first", "second"]),
    repeat=st.integers(0, 3),
)


def run(tmp_path, run_id, cases, *, simulated=True, taken=(), reused=None):
    return RunCases(tmp_path / run_id, run_id, simulated, tuple(cases), tuple(taken), reused)


def results(cases):
    return [case.result for case in cases]


@given(st.lists(_cases), st.lists(_cases), st.integers(0, 5))
def test_merged_runs_aggregate_like_their_cases(tmp_path_factory, first, second, n_shared):
    # The second run repeats some cases of the first run.
    second = [*second, *first[:n_shared]]
    place = tmp_path_factory.getbasetemp()
    merged = merge([run(place, "first", first), run(place, "second", second)])
    whole = {case.case_id: case for case in [*first, *second]}
    assert len(merged) == len(whole)
    assert aggregate(results(merged)) == aggregate(results(whole.values()))


@given(st.lists(_results), st.randoms())
def test_rows_count_all_cases_in_any_order(cases, random):
    rows = aggregate(cases)
    shuffled = list(cases)
    random.shuffle(shuffled)
    assert aggregate(shuffled) == rows
    measured = [case for case in cases if case.outcome in {"solved", "partial", "unsolved"}]
    assert sum(row["total"] for row in rows) == len(measured)
    assert sum(row["infra"] for row in rows) == sum(case.outcome == "infra" for case in cases)
    n_errors = sum(case.outcome != "solved" for case in measured)
    assert sum(row["total_errors"] for row in rows) == n_errors
    for row in rows:
        total = row["total"]
        assert row["success"] == row["full_success"] + row["partial_success"]
        assert row["success"] == row["successful"] == total - row["failed"]
        assert row["partial"] == row["partial_success"]
        if not total:
            assert row["success_rate"] is row["avg_turns"] is row["weighted_success_score"] is None
            continue
        assert row["success_rate"] == row["success"] / total
        expected = (row["full_success"] + 0.5 * row["partial"]) / total
        assert math.isclose(row["weighted_success_score"], expected)
        names = [name for name in row if name.endswith("_error_rate")]
        shares = [row[name] for name in names]
        assert len(names) == 8
        assert shares == [None] * 8 if not row["total_errors"] else math.isclose(sum(shares), 1)


@given(st.lists(_cases, max_size=30), st.randoms())
def test_no_table_counts_a_case_twice_or_takes_a_case_that_a_phase_sent_itself(cases, random):
    baseline = [case for case in cases if case.suite == "phase51"]
    suites = ("phase52", "phase54", "phase55")
    took = {suite: random.sample(baseline, random.randint(0, len(baseline))) for suite in suites}
    for phase in ALL_PHASES:
        wanted = {case.case_id for case in took.get(phase.suite, ())}
        found = phase_cells(phase, Counted(tuple(cases), {s: tuple(t) for s, t in took.items()}))
        own = [case for case in cases if case.suite == phase.suite]
        if found is None:
            assert own == []
            assert not wanted
            continue
        shown = [case for cell in found.cells for case in cell.cases]
        assert len({case.case_id for case in shown}) == len(shown)
        assert {case.case_id for case in own} <= {case.case_id for case in shown}
        taken = {case.case_id for case in shown if case.suite != phase.suite}
        assert taken <= wanted
        asked = {question(case) for case in own}
        for case in baseline:
            if case.case_id in wanted:
                assert (case.case_id in taken) == (question(case) not in asked)


def test_run_that_was_not_reused_is_refused(tmp_path):
    other = run(tmp_path, "other", [bench_case()])
    for reused, said in (("old", "run old"), (None, "no run")):
        new = run(tmp_path, "new", [bench_case()], reused=reused)
        with pytest.raises(ConfigError, match=f"new reused {said}, not .*/other"):
            counted([new], other)


def test_first_run_that_measured_a_case_counts():
    first = [
        bench_case(outcome="infra", case_id="x"),
        bench_case(outcome="solved", case_id="y"),
        bench_case(outcome="infra", case_id="z"),
    ]
    second = [
        bench_case(outcome="partial", case_id="y", run_id="second"),
        bench_case(outcome="unsolved", case_id="x", run_id="second"),
        bench_case(outcome="error", case_id="z", run_id="second"),
    ]
    kept = {case.case_id: case.result.outcome for case in each_once([*first, *second])}
    assert kept == {"x": "unsolved", "y": "solved", "z": "infra"}


def test_simulated_and_real_answers_are_not_mixed(tmp_path):
    simulated = run(tmp_path, "first", [bench_case()])
    real = run(tmp_path, "second", [bench_case()], simulated=False)
    with pytest.raises(
        ConfigError, match="of second are real, but the answers of first are simulated"
    ):
        merge([simulated, real])
    with pytest.raises(
        ConfigError, match="of second are real, but the answers of first are simulated"
    ):
        counted([simulated], real)


def test_case_of_the_run_itself_is_never_replaced_by_the_reused_run(tmp_path):
    cases = [bench_case("phase54", "infra", rate=0.9, case_id="x"), bench_case(case_id="y")]
    earlier = [
        bench_case("phase54", rate=0.9, case_id="x", run_id="old"),
        bench_case("phase54", rate=0.9, repeat=1, run_id="old"),
        bench_case("phase51", "unsolved", case_id="y", run_id="old"),
        bench_case("phase51", "partial", case_id="z", repeat=1, run_id="old"),
    ]
    taken = [Shared("phase54", ("y",), ("z",))]
    new = run(tmp_path, "new", cases, taken=taken, reused="old")
    found = counted([new], run(tmp_path, "old", earlier))
    outcomes = {case.case_id: case.result.outcome for case in found.answers()}
    assert outcomes == {"x": "infra", "y": "solved", "z": "partial"}
    assert [case.case_id for case in found.taken["phase54"]] == ["y", "z"]
