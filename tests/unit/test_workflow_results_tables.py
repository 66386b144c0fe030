"""A table for each phase; every figure here is computed by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_suites.workflow_results.bench_case import PHASES
from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.figures import coverage, efficiency, percent_of
from bench_suites.workflow_results.model_size import model_size_b
from bench_suites.workflow_results.tables import tables
from pytest_ultrapar.results.statistics import wilson_interval
from tests.unit.workflow_results_runs import bench_case, some


def table(cases, suite, *, taken=(), reference=()):
    """The rows of a phase's table by head, and its footnotes."""
    counted = Counted(tuple(cases), {suite: tuple(taken)}, tuple(reference))
    (lines,) = tables(counted, "first", [suite])
    bars = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in bars}) == 1, "not aligned"
    head, _, *rows = [[cell.strip() for cell in bar.strip("|").split("|")] for bar in bars]
    notes = [line.strip() for line in lines if line.startswith("[")]
    return [dict(zip(head, row, strict=True)) for row in rows], notes


def test_baseline_has_a_row_for_each_model():
    cases = [
        *some("phase51", solved=3, partial=1, infra=2, model="b"),
        *some("phase51", unsolved=1, model="a"),
    ]
    (b, a), notes = table(cases, "phase51")
    assert notes == []
    assert b == {
        "model": "b",
        "n": "4",
        "infra": "2",
        "coverage %": "66.7",
        "solved % (95 %)": "75.0 (30.1-95.4)",
        "partial % (95 %)": "25.0 (4.6-69.9)",
        "weighted": "0.875",
        "workflow": "0.900",
        "phase2": "0.800",
        "quality": "-",
        "coverage of tools": "-",
        "turns": "5.8",
    }
    assert (a["model"], a["n"], a["solved % (95 %)"]) == ("a", "1", "0.0 (0.0-79.3)")


def test_cell_without_a_measurement_shows_no_figure():
    ((row),), _ = table(some("phase51", infra=3), "phase51")
    assert (row["n"], row["infra"], row["coverage %"]) == ("0", "3", "0.0")
    assert {row[head] for head in ("solved % (95 %)", "weighted", "phase2", "turns")} == {"-"}


def test_coverage_is_of_planned_cases_that_were_not_skipped():
    outcomes = ["solved", "partial", "infra", "error", "never ran", "skipped"]
    assert coverage([bench_case(outcome=outcome) for outcome in outcomes]) == 2 / 5
    assert coverage([bench_case(outcome="skipped")]) == 1


def test_scale_takes_the_easy_level_and_has_the_largest_model_first():
    qwen7, qwen72 = "qwen2.5-7b-instruct", "qwen2.5-72b-instruct"
    easy = some("phase51", solved=4, model=qwen7)
    cases = [
        *easy,
        *some("phase51", solved=4, model="DeepSeek-V3-0324"),
        *some("phase51", solved=1, model=qwen7, task_type="simple_task"),
        *some("phase52", solved=2, partial=1, unsolved=1, model=qwen7, difficulty="medium"),
        *some("phase52", solved=9, model=qwen72, difficulty="very_easy"),
    ]
    rows, notes = table(cases, "phase52", taken=easy)
    assert [(row["model"], row["size (B)"], row["difficulty"], row["n"]) for row in rows] == [
        (qwen72, "72", "very_easy", "9"),
        (qwen7, "7", "easy [1]", "4"),
        (qwen7, "7", "medium", "4"),
    ]
    assert notes == ["[1] from phase 5.1"]
    # 75 % / sqrt(7), and 9 of 9: 100 % / sqrt(72).
    assert rows[2]["efficiency (95 %)"].startswith("28.35 (")
    assert rows[0]["efficiency (95 %)"] == "11.79 (8.26-11.79)"
    assert rows[2]["success % (95 %)"] == "75.0 (30.1-95.4)"


def test_model_without_a_size_has_no_efficiency():
    (row,), _ = table(some("phase52", solved=1, model="o3", difficulty="medium"), "phase52")
    assert (row["size (B)"], row["efficiency (95 %)"]) == ("-", "-")


def test_flaws_tell_obeying_from_repairing_beside_the_sound_plan():
    obeys = {"obeyed": 1.0, "repaired": 0.0, "needless": 2.0, "reachable": 1.0}
    repairs = {"obeyed": 0.0, "repaired": 1.0, "substitute": 1.0, "reachable": 1.0}
    cases = [
        *some("phase53", solved=1, flaw="tool_misuse", scores=repairs),
        *some("phase53", unsolved=3, flaw="tool_misuse", scores=obeys),
        *some("phase53", unsolved=2, flaw="sequence_disorder", scores=obeys | {"reachable": 0.0}),
        *some("phase51", solved=3, partial=1),
        *some("phase51", solved=7, prompt_type="baseline"),
    ]
    rows, notes = table(cases, "phase53")
    assert notes == ["[1] from phase 5.1"]
    none, disorder, misuse, together = rows
    assert [row["flaw"] for row in rows] == [
        "none [1]",
        "sequence_disorder",
        "tool_misuse",
        "all flaws",
    ]
    assert (none["n"], none["solved %, no flaw"]) == ("4", "75.0 [1]")
    assert (misuse["obeyed"], misuse["repaired"], misuse["needless calls"]) == (
        "0.75",
        "0.25",
        "1.5",
    )
    assert (misuse["substitutes"], disorder["substitutes"]) == ("1", "0")
    assert (none["obeyed"], none["repaired"]) == ("-", "-")
    # What luck took is not booked to the flaw.
    assert (disorder["reachable %"], disorder["solved of reachable % (95 %)"]) == ("0.0", "-")
    assert misuse["solved of reachable % (95 %)"].startswith("25.0 (")
    assert together["solved of reachable % (95 %)"].startswith("25.0 (")
    # The sound plan's four cases are not among those with a flaw.
    assert (together["n"], together["solved % (95 %)"]) == ("6", "16.7 (3.0-56.4)")
    assert together["solved %, no flaw"] == "75.0 [1]"


def test_flaws_without_a_baseline_have_no_reference():
    (row,), notes = table(some("phase53", solved=1, flaw="tool_misuse"), "phase53")
    assert row["solved %, no flaw"] == "-"
    assert notes == []


def test_severities_are_rows_of_their_own_with_the_same_reference():
    cases = [
        *some("phase53", solved=1, flaw="tool_misuse", severity="light"),
        *some("phase53", unsolved=1, flaw="tool_misuse", severity="severe"),
        *some("phase51", solved=1),
    ]
    rows, _ = table(cases, "phase53")
    assert [(row["severity"], row["flaw"], row["solved %, no flaw"]) for row in rows] == [
        ("none", "none [1]", "100.0 [1]"),
        ("light", "tool_misuse", "100.0 [1]"),
        ("severe", "tool_misuse", "100.0 [1]"),
    ]


def test_reliability_takes_its_level_and_falls_from_row_to_row():
    cases = [
        *some("phase54", unsolved=1, rate=0.5),
        *some("phase54", solved=1, rate=0.9),
        *some("phase54", partial=1, rate=0.7),
    ]
    rows, notes = table(cases, "phase54", taken=some("phase51", solved=1, unsolved=1))
    assert [row["tool success rate"] for row in rows] == ["0.9", "0.8 [1]", "0.7", "0.5"]
    assert [row["solved % (95 %)"].split()[0] for row in rows] == ["100.0", "50.0", "0.0", "0.0"]
    assert [row["partial % (95 %)"].split()[0] for row in rows] == ["0.0", "0.0", "100.0", "0.0"]
    assert notes == ["[1] from phase 5.1"]


def test_level_that_a_phase_has_itself_is_not_taken():
    cases = [*some("phase54", solved=2, rate=0.8), *some("phase54", solved=2, rate=0.9)]
    # One of two runs took what the other one asked.
    rows, notes = table(cases, "phase54", taken=some("phase51", unsolved=2))
    assert [(row["tool success rate"], row["n"]) for row in rows] == [("0.9", "2"), ("0.8", "2")]
    assert notes == []


def test_what_the_baseline_had_no_answer_to_is_asked_and_counted_once():
    cases = [
        bench_case("phase54", rate=0.9),
        # In a run that reuses another one, a phase asks again what was `infra` there.
        bench_case("phase54", "unsolved", repeat=1),
    ]
    earlier = [bench_case("phase51", repeat=repeat, run_id="earlier") for repeat in (0, 2)]
    (_, taken), notes = table(cases, "phase54", taken=earlier)
    assert (taken["tool success rate"], taken["n"], taken["infra"]) == ("0.8 [1]", "3", "0")
    assert taken["solved % (95 %)"].split()[0] == "66.7"
    assert notes == ["[1] partly from phase 5.1 of run earlier"]


def test_cells_that_were_not_taken_are_no_rows():
    cases = [*some("phase55", solved=1, prompt_type="cot"), *some("phase51", solved=1)]
    rows, notes = table(cases, "phase55")
    assert [row["prompt type"] for row in rows] == ["cot"]
    assert notes == []


def test_phase_that_took_all_of_its_cells_has_its_table():
    taken = [
        *some("phase51", solved=1, prompt_type="cot"),
        *some("phase51", unsolved=1, infra=1, prompt_type="baseline"),
    ]
    rows, notes = table(taken, "phase55", taken=taken)
    assert [(row["model"], row["prompt type"], row["n"], row["infra"]) for row in rows] == [
        ("m", "baseline [1]", "1", "1"),
        ("m", "cot [1]", "1", "0"),
    ]
    assert notes == ["[1] from phase 5.1"]


def test_taken_levels_are_those_that_options_chose():
    own = some("phase54", solved=1, rate=0.5, prompt_type="cot")
    taken = [
        *some("phase51", solved=1, rate=0.9, prompt_type="cot"),
        *some("phase51", solved=1, rate=0.9),
    ]
    rows, _ = table([*own, *taken], "phase54", taken=taken)
    assert [(row["prompt type"], row["tool success rate"]) for row in rows] == [
        ("optimal", "0.9 [1]"),
        ("cot", "0.9 [1]"),
        ("cot", "0.5"),
    ]


def test_flaws_are_not_compared_with_other_conditions():
    cases = [
        *some("phase53", solved=1, flaw="tool_misuse", rate=0.6),
        *some("phase51", solved=1, rate=0.8),
        *some("phase51", solved=1, rate=0.6, difficulty="hard"),
    ]
    (row,), _ = table(cases, "phase53")
    assert (row["flaw"], row["solved %, no flaw"]) == ("tool_misuse", "-")


def test_flaws_are_compared_with_a_reused_run():
    cases = some("phase53", solved=1, flaw="tool_misuse")
    (none, _), notes = table(
        cases, "phase53", reference=[bench_case("phase51", "partial", run_id="earlier")]
    )
    assert (none["flaw"], none["n"], none["solved %, no flaw"]) == ("none [1]", "1", "0.0 [1]")
    assert notes == ["[1] from phase 5.1 of run earlier"]


def test_prompt_types_are_also_shown_over_all_models():
    cases = [
        *some("phase55", solved=1, model="a", prompt_type="cot"),
        *some("phase55", unsolved=3, model="b", prompt_type="cot"),
        *some("phase55", solved=1, model="b", prompt_type="baseline"),
    ]
    taken = [*some("phase51", solved=2, model="a"), *some("phase51", partial=2, model="b")]
    rows, notes = table(cases, "phase55", taken=taken)
    shown = [(row["model"], row["prompt type"], row["n"]) for row in rows]
    # Baseline is left out above: only one model has it, which is no comparison.
    assert shown == [
        ("all models", "optimal [1]", "4"),
        ("all models", "cot", "4"),
        ("a", "optimal [1]", "2"),
        ("a", "cot", "1"),
        ("b", "baseline", "1"),
        ("b", "optimal [1]", "2"),
        ("b", "cot", "3"),
    ]
    assert rows[0]["success % (95 %)"].split()[0] == "100.0"
    assert rows[1]["solved % (95 %)"].split()[0] == "25.0"
    assert notes == ["[1] from phase 5.1"]


def test_rows_are_told_apart_by_what_an_option_varied():
    cases = [*some("phase51", solved=1, rate=0.8), *some("phase51", unsolved=1, rate=0.6)]
    rows, _ = table(cases, "phase51")
    assert [(row["tool success rate"], row["n"]) for row in rows] == [("0.8", "1"), ("0.6", "1")]


def test_conditions_that_all_rows_share_are_said_once():
    (lines,) = tables(Counted(tuple(some("phase51", solved=1))), "first", ["phase51"])
    assert "All with prompt type optimal, difficulty easy, tool success rate 0.8." in lines


def test_cases_of_another_run_are_marked():
    cases = [
        *some("phase51", solved=1, model="a"),
        *some("phase51", solved=1, model="b", run_id="second"),
        *some("phase51", solved=1, model="c"),
        *some("phase51", solved=1, model="c", run_id="second"),
    ]
    rows, notes = table(cases, "phase51")
    assert [row["model"] for row in rows] == ["a", "b [1]", "c [2]"]
    assert notes == ["[1] from run second", "[2] partly from run second"]


def test_phase_that_asked_and_took_nothing_has_no_table():
    assert list(tables(Counted(tuple(some("phase51", solved=1))), "first", PHASES[1:])) == []


def test_names_cannot_break_a_table():
    (lines,) = tables(Counted((bench_case(model="a|b\x1b[31m"),)), "first", ["phase51"])
    assert lines[-1].startswith("| a\\|b\\x1b[31m | ")


@pytest.mark.parametrize(
    ("model", "size_b"),
    [
        ("qwen2.5-72b-instruct", 72),
        ("qwen2.5-3b-instruct", 3),
        ("Llama-3.3-70B-Instruct", 70),
        ("qwen2.5-0.5b", 0.5),
        ("qwen3-30b-a3b", 30),
        ("DeepSeek-V3-0324", None),
        ("mixtral-8x7b", None),
        ("gpt-4o-mini", None),
        ("x-4bit", None),
        ("model-0b", None),
        ("", None),
    ],
)
def test_model_size_is_read_from_the_name(model, size_b):
    assert model_size_b(model) == size_b


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_holds_the_share_and_is_wilsons(hits_of):
    n_hits, n = hits_of
    shown = [float(number) for number in re.findall(r"[\d.]+", percent_of(n_hits, n))]
    share, low, high = shown
    assert 0 <= low <= share <= high <= 100
    assert shown == [round(100 * each, 1) for each in (n_hits / n, *wilson_interval(n_hits, n))]
    assert efficiency(n_hits, n, 4).split()[0] == f"{50 * n_hits / n:.2f}"
    assert percent_of(0, 0) == "-"
