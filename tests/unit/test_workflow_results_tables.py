"""A table for each phase; every figure here is computed by hand."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_suites.workflow_results.bench_case import PHASES
from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.figures import coverage, efficiency, with_interval
from bench_suites.workflow_results.model_size import model_size_b
from bench_suites.workflow_results.tables import BEST, tables
from pytest_ultrapar.analysis.paired import clustered_share
from pytest_ultrapar.analysis.statistics import wilson_interval
from tests.unit.workflow_results_runs import bench_case, some

PAIRED = "same tasks, solved %: flaw / no flaw (n)"


def table(cases, suite, *, taken=(), reference=()):
    """The rows of a phase's table by column, without the flawless model, and its footnotes."""
    rows, notes = whole_table(cases, suite, taken=taken, reference=reference)
    return [row for row in rows if row["model"] != BEST], notes


def whole_table(cases, suite, *, taken=(), reference=()):
    counted = Counted(tuple(cases), {suite: tuple(taken)}, tuple(reference))
    (lines,) = tables(counted, "first", [suite])
    bars = [line for line in lines if line.startswith("|")]
    assert len({len(line) for line in bars}) == 1, "not aligned"
    head, _, *rows = [[cell.strip() for cell in bar.strip("|").split("|")] for bar in bars]
    notes = [line.strip() for line in lines if line.startswith("[")]
    return [dict(zip(head, row, strict=True)) for row in rows], notes


def test_table_of_the_baseline_has_a_row_for_each_model():
    cases = [
        *some("phase51", solved=3, partial=1, infra=2, model="b"),
        *some("phase51", unsolved=1, model="a"),
    ]
    (b, a), notes = table(cases, "phase51")
    assert notes == []
    assert b == {
        "model": "b",
        "n": "4",
        "unscored": "0",
        "infra": "2",
        "coverage %": "66.7",
        "solved % (95 %)": "75.0 (30.1-95.4)",
        "partial % (95 %)": "25.0 (4.6-69.9)",
        "solved by the original % (95 %)": "0.0 (0.0-49.0)",
        "weighted": "0.875",
        "workflow": "0.900",
        "phase2": "0.800",
        "quality": "-",
        "coverage of tools": "-",
        "turns": "5.8",
    }
    assert (a["model"], a["n"], a["solved % (95 %)"]) == ("a", "1", "0.0 (0.0-79.3)")


def test_cut_answers_are_counted_below_the_table():
    cases = [
        *some("phase51", solved=2, model="b", scores={"turns": 6.0, "cut_answers": 2.0}),
        *some("phase51", unsolved=1, infra=1, model="b", scores={"turns": 3.0, "cut_answers": 0.0}),
        *some("phase51", solved=1, model="a", scores={"turns": 3.0, "cut_answers": 0.0}),
        *some("phase51", solved=1, model="of an earlier version"),
    ]
    (lines,) = tables(Counted(tuple(cases), {"phase51": ()}, ()), "first", ["phase51"])
    (said,) = [line for line in lines if "truncated" in line]
    assert said.strip() == "b: 4 of 15 answers (27 %) were truncated at their token limit"


def test_coverage_is_of_planned_cases_that_were_not_skipped():
    outcomes = ["solved", "partial", "infra", "error", "never ran", "skipped"]
    assert coverage([bench_case(outcome=outcome) for outcome in outcomes]) == 2 / 5
    assert coverage([bench_case(outcome="skipped")]) == 1


def test_table_of_scale_includes_the_easy_level_and_begins_with_the_largest_model():
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


def test_table_of_flaws_distinguishes_obeying_repairing_and_the_sound_plan():
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
    assert none["n"] == "4"
    assert (misuse["obeyed"], misuse["repaired"], misuse["unnecessary calls"]) == (
        "0.75",
        "0.25",
        "2.0",
    )
    assert (misuse["substitutes (n)"], disorder["substitutes (n)"]) == ("1", "-")
    assert (none["obeyed"], none["repaired"], none["substitutes (n)"]) == ("-", "-", "-")
    # Random failures are not attributed to the flaw.
    assert (disorder["reachable %"], disorder["solved of reachable % (95 %)"]) == ("0.0", "-")
    assert misuse["solved of reachable % (95 %)"].startswith("25.0 (")
    assert together["solved of reachable % (95 %)"].startswith("25.0 (")
    # The sound plan's four cases are not among those with a flaw.
    assert (together["n"], together["solved % (95 %)"].split()[0]) == ("6", "16.7")


def test_table_of_reliability_includes_the_baseline_and_has_falling_rates():
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


def test_unanswered_case_of_the_baseline_is_repeated_and_counted_once():
    cases = [
        bench_case("phase54", rate=0.9),
        # A run that reuses another one repeats the cases that are `infra` there.
        bench_case("phase54", "unsolved", repeat=1),
    ]
    earlier = [bench_case("phase51", repeat=repeat, run_id="earlier") for repeat in (0, 2)]
    (_, taken), notes = table(cases, "phase54", taken=earlier)
    assert (taken["tool success rate"], taken["n"], taken["infra"]) == ("0.8 [1]", "3", "0")
    assert taken["solved % (95 %)"].split()[0] == "66.7"
    assert notes == ["[1] partly from phase 5.1 of run earlier"]


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


def test_flaws_are_not_compared_with_other_conditions():
    cases = [
        *some("phase53", solved=1, flaw="tool_misuse", rate=0.6),
        *some("phase51", solved=1, rate=0.8),
        *some("phase51", solved=1, rate=0.6, difficulty="hard"),
    ]
    (row,), _ = table(cases, "phase53")
    assert (row["flaw"], row[PAIRED]) == ("tool_misuse", "-")


def test_prompt_types_are_also_shown_over_all_models():
    cases = [
        *some("phase55", solved=1, model="a", prompt_type="cot"),
        *some("phase55", unsolved=3, model="b", prompt_type="cot"),
        *some("phase55", solved=1, model="b", prompt_type="baseline"),
    ]
    taken = [*some("phase51", solved=2, model="a"), *some("phase51", partial=2, model="b")]
    rows, notes = table(cases, "phase55", taken=taken)
    shown = [(row["model"], row["prompt type"], row["n"]) for row in rows]
    # The rows of all models omit baseline: only one model has it.
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


def test_names_do_not_break_a_table():
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
def test_interval_of_independent_cases_contains_the_share_and_is_wilsons(hits_of):
    n_hits, n = hits_of
    share = clustered_share((at, at < n_hits) for at in range(n))
    shown = [float(number) for number in re.findall(r"[\d.]+", with_interval(share))]
    value, low, high = shown
    assert 0 <= low <= value <= high <= 100
    assert shown == [round(100 * each, 1) for each in (n_hits / n, *wilson_interval(n_hits, n))]
    # A value halfway between two figures may be rounded either way: the share is not exact.
    assert abs(float(efficiency(share, 4).split()[0]) - 50 * n_hits / n) <= 0.005 + 1e-9


def test_flaws_on_the_same_tasks_do_not_narrow_the_interval():
    flaws = ("tool_misuse", "missing_step", "semantic_drift")
    cases = [case for flaw in flaws for case in some("phase53", solved=6, unsolved=4, flaw=flaw)]
    *_, together = table(cases, "phase53")[0]
    low, high = (100 * bound for bound in wilson_interval(6, 10))
    assert (together["flaw"], together["n"]) == ("all flaws", "30")
    _, shown_low, shown_high = map(float, re.findall(r"[\d.]+", together["solved % (95 %)"]))
    assert low - 5 < shown_low < low
    assert high < shown_high < high + 5


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=40))
def test_interval_of_clusters_is_never_narrower_than_of_independent_cases(clusters):
    n = sum(map(len, clusters))
    found = clustered_share((at, hit) for at, hits in enumerate(clusters) for hit in hits)
    low, high = wilson_interval(sum(map(sum, clusters)), n)
    assert 0 <= found.low <= low + 1e-12
    assert high - 1e-12 <= found.high <= 1
    assert found.n == n


def test_interval_of_dependent_cases_covers_the_truth():
    """A third of the results are independent, the others equal the draw of their cluster."""
    draw = random.Random(7)
    n_runs, n_held = 1_000, 0
    for _ in range(n_runs):
        hits = [
            (cluster, luck if draw.random() < 2 / 3 else draw.random() < 0.7)
            for cluster, luck in [(at, draw.random() < 0.7) for at in range(30)]
            for _ in range(8)
        ]
        found = clustered_share(hits)
        n_held += found.low <= 0.7 <= found.high
    assert 0.92 <= n_held / n_runs <= 0.99


def test_refused_prompts_are_not_solved_and_have_no_score():
    scores = {"reachable": 1.0, "obeyed": 0.5, "repaired": 0.25, "execution": 0.5}
    cases = [
        *some("phase53", solved=5, flaw="tool_misuse", scores=scores),
        *some("phase53", unsolved=5, flaw="tool_misuse", scores={"turns": 1}),
    ]
    (row,), _ = table(cases, "phase53")
    assert (row["n"], row["unscored"]) == ("10", "5")
    assert row["solved % (95 %)"].startswith("50.0 (")
    assert row["reachable %"] == "100.0"
    assert row["solved of reachable % (95 %)"].startswith("50.0 (")
    assert (row["obeyed"], row["repaired"], row["execution"]) == ("0.50", "0.25", "0.500")


def test_random_failures_do_not_lower_obedience():
    reached = {"reachable": 1.0, "obeyed": 0.75, "repaired": 0.0}
    unlucky = {"reachable": 0.0, "obeyed": 0.0, "repaired": 0.0}
    cases = [
        *some("phase53", unsolved=2, flaw="tool_misuse", scores=reached),
        *some("phase53", unsolved=6, flaw="tool_misuse", scores=unlucky),
    ]
    (row,), _ = table(cases, "phase53")
    assert (row["obeyed"], row["repaired"], row["neither"]) == ("0.75", "0.00", "0.25")


def test_flaw_is_compared_on_tasks_common_to_both_plans():
    other_task = {"reachable": 1.0, "substitute": 1.0}
    cases = [
        bench_case("phase53", "unsolved", flaw="tool_misuse", repeat=0),
        bench_case("phase53", "solved", flaw="tool_misuse", repeat=1, scores=other_task),
        # Refused: only the case of another model shows that the task is a substitute.
        bench_case("phase53", "solved", flaw="tool_misuse", repeat=2, scores={}),
        bench_case("phase53", "solved", flaw="tool_misuse", repeat=2, scores=other_task, model="b"),
        bench_case("phase53", "unsolved", flaw="tool_misuse", repeat=3),
        bench_case("phase53", "unsolved", flaw="tool_misuse", repeat=4),
        # Cases with outcome `infra`, another seed or another model make no pair.
        *some("phase51", solved=3, partial=1, infra=1),
        *some("phase51", unsolved=5, run_seed=1),
        bench_case("phase51", "unsolved", model="b", repeat=2),
    ]
    rows, _ = table(cases, "phase53")
    shown = {(row["model"], row["flaw"]): row[PAIRED] for row in rows}
    assert shown["m", "tool_misuse"] == "0.0 / 50.0 (2) [1]"
    assert shown["b", "tool_misuse"] == "-"


@pytest.mark.parametrize("suite", PHASES)
def test_every_phase_has_the_original_verdict(suite):
    scores = {"reachable": 1.0, "verdict_original": 1.0}
    fields = {"flaw": "tool_misuse"} if suite == "phase53" else {}
    cases = [
        *some(suite, unsolved=1, scores=scores, **fields),
        *some(suite, partial=3, scores=scores | {"verdict_original": 0.5}, **fields),
    ]
    (row,), _ = table(cases, suite)
    assert row["solved by the original % (95 %)"].startswith("25.0 (")
    assert row["partial % (95 %)"].startswith("75.0 (")


@pytest.mark.parametrize(
    ("suite", "fields"),
    [
        ("phase53", {"flaw": "tool_misuse"}),
        ("phase54", {"rate": 0.5}),
        ("phase55", {"prompt_type": "cot"}),
    ],
)
def test_flawless_model_has_a_row_if_all_models_have_the_same_cases(suite, fields):
    def scored(model, *outcomes):
        return [
            bench_case(
                suite,
                outcome,
                model=model,
                repeat=at,
                scores={} if outcome == "infra" else {"reachable": float(at != 1)},
                **fields,
            )
            for at, outcome in enumerate(outcomes)
        ]

    cases = [*scored("a", "solved", "unsolved", "infra"), *scored("b", *["unsolved"] * 3)]
    best, *others = whole_table(cases, suite)[0]
    assert (best["model"], best["n"], best["reachable %"]) == (BEST, "3", "66.7")
    assert best["solved % (95 %)"].startswith("66.7 (")
    unknown = {"infra", "partial % (95 %)", "solved of reachable % (95 %)"}
    assert {best[head] for head in unknown} == {"-"}
    assert BEST not in {row["model"] for row in others}
    # Model b has another case: no row holds for both models.
    cases.append(bench_case(suite, model="b", repeat=9, **fields))
    assert BEST not in {row["model"] for row in whole_table(cases, suite)[0]}


def reached_in(flaw, severity, *missed):
    """Ten cases of a cell; `missed` are the repetitions that no model can solve."""
    return [
        bench_case(
            "phase53",
            repeat=at,
            flaw=flaw,
            severity=severity,
            scores={"reachable": float(at not in missed)},
        )
        for at in range(10)
    ]


def best_rows(cases):
    rows, _ = whole_table(cases, "phase53")
    return [
        (row["severity"], row["flaw"], row["reachable %"]) for row in rows if row["model"] == BEST
    ]


def test_flawless_model_has_a_row_for_each_level_that_differs():
    """Substitute tasks may have other random failures."""
    cases = [
        case
        for severity in ("light", "severe")
        for case in (
            *reached_in("missing_step", severity, 3),
            *reached_in("sequence_disorder", severity, 4, 5),
            *reached_in("tool_misuse", severity, 3),
        )
    ]
    assert sorted(best_rows(cases)) == [
        ("light, severe", "sequence_disorder", "80.0"),
        ("light, severe", "tool_misuse, missing_step", "90.0"),
    ]
