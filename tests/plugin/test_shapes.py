"""The effects that phases 5.1, 5.3, 5.4 and 5.5 must show, from a run on the simulated provider.

Phase 5.2 is missing: it uses only Qwen models, and this pool has no Qwen model.

The answers of the simulated models depend only on seeds, so a figure here is the same in every run:
a test that passed once fails only after a change. The error rate is the rate over new seeds: the
chance that a false claim in a test's name passes. It is at most `ERROR_RATE` per claim, and at
most 8 % for the eight claims of this file together. All comparisons use pairs with the same task
and repetition, whose chances are independent given the task, and two exact tests:

- `chance_of_wins`: the sign test (McNemar's for two outcomes) of "better more often than worse".
- `chance_of_few_losses`: the binomial test of "less than `MARGIN` of the pairs are lost", for
  things that must cost nothing. Wins do not offset losses, so it also bounds the loss of success.

A claim with several comparisons passes only if all of them do, so it needs no correction for their
number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench_suites import workflow
from tests.running import run_pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REPEATS = 8
MODELS = ("obedient", "repairing", "sloppy", "beginner")
SUITES = [f"bench_suites/phase5{number}" for number in (1, 3, 4, 5)]
ERROR_RATE = 0.01
"""The error rate of each claim, one-sided."""
MARGIN = 0.15
"""The share of lost pairs that counts as no loss. It is half of the beginner's gain from the plan
in the prompt (0.29). It is less than a sixth of the cost of a flaw for the obedient model (0.97),
and of open tags with a parser that requires the closing tag (all pairs)."""
WORST = ("missing_step", "tool_misuse", "sequence_disorder")
RANK = {"unsolved": 0, "partial": 1, "solved": 2}

Row = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four phases as one run: 4 models, 5 task types, 8 repetitions."""
    out = tmp_path_factory.mktemp("shapes") / "run"
    pool = ("--ultrapar-pool=pools/shapes.toml", f"--ultrapar-repeats={REPEATS}")
    run_pytest(ROOT, *SUITES, "-n0", "-q", *pool, f"--ultrapar-out={out}")
    return out


@pytest.fixture(scope="module")
def rows(run: Path) -> list[Row]:
    return pq.read_table(run / "results.parquet").to_pylist()


def of(rows: list[Row], suites: str, **wanted: object) -> list[Row]:
    """Rows of some suites with these values; the cells of 5.1 belong to 5.2, 5.4 and 5.5."""
    names = {"model": "model"}
    return [
        row
        for row in rows
        if row["suite"] in suites.split()
        and all(row[names.get(name, f"param.{name}")] == value for name, value in wanted.items())
    ]


def solved(row: Row) -> float:
    return row["outcome"] == "solved"


def rank(row: Row) -> float:
    return RANK[row["outcome"]]


def differences(
    first: list[Row], second: list[Row], value: Callable[[Row], float], *also: str
) -> list[float]:
    """The first minus the second, for each pair of the same task, repetition and `also` columns."""

    def by_pair(rows: list[Row]) -> dict[tuple[object, ...], float]:
        names = ("param.task_type", "repeat", *also)
        found = {tuple(row[name] for name in names): value(row) for row in rows}
        assert len(found) == len(rows) > 0
        return found

    one, other = by_pair(first), by_pair(second)
    assert one.keys() == other.keys()
    return [one[pair] - other[pair] for pair in one]


def chance_of_wins(found: Iterable[float]) -> float:
    """The chance of at least this many positive differences if both signs are equally likely."""
    decided = [difference > 0 for difference in found if difference]
    n = len(decided)
    return sum(math.comb(n, k) for k in range(sum(decided), n + 1)) / 2**n


def chance_of_few_losses(found: list[float]) -> float:
    """The chance of at most this many negative differences if `MARGIN` of all are negative."""
    n, n_lost = len(found), sum(difference < 0 for difference in found)
    return sum(math.comb(n, k) * MARGIN**k * (1 - MARGIN) ** (n - k) for k in range(n_lost + 1))


def mean(rows: list[Row], value: Callable[[Row], float]) -> float:
    return sum(map(value, rows)) / len(rows)


def test_each_cell_ran_once(rows):
    assert {name: len(of(rows, name)) for name in ("phase51", "phase53", "phase54", "phase55")} == {
        "phase51": 4 * 5 * REPEATS,
        "phase53": 4 * 7 * 5 * REPEATS,
        "phase54": 4 * 4 * 5 * REPEATS,
        "phase55": 4 * 2 * 5 * REPEATS,
    }
    assert {row["outcome"] for row in rows} <= {"solved", "partial", "unsolved"}


def test_chances_equal_the_values_of_the_exact_tests():
    assert chance_of_wins([1, 0.5, 2, -1, 0, 0]) == 5 / 16
    assert chance_of_wins([0, 0]) == chance_of_wins([-1, -1]) == 1
    assert chance_of_few_losses([0.0] * 10) == pytest.approx(0.85**10)
    assert chance_of_few_losses([-1.0, 1.0]) == pytest.approx(1 - 0.15**2)


def test_success_falls_and_partial_rises_as_tools_fail_more(rows):
    """Two claims, error rate 1 % each: success falls with every 0.2 of the tools' rate; partial
    success is more frequent at 0.5 than at 0.9. Sign tests of 160 pairs."""
    by_rate = {
        rate: of(rows, "phase51 phase54", tool_success_rate=rate)
        for rate in (0.9, 0.8, 0.7, 0.6, 0.5)
    }
    assert {len(own) for own in by_rate.values()} == {4 * 5 * REPEATS}
    for more, less in ((0.9, 0.7), (0.8, 0.6), (0.7, 0.5)):
        fall = differences(by_rate[more], by_rate[less], solved, "model")
        assert chance_of_wins(fall) < ERROR_RATE, (more, less)
    rise = differences(by_rate[0.5], by_rate[0.9], lambda row: row["outcome"] == "partial", "model")
    assert chance_of_wins(rise) < ERROR_RATE


def test_a_plan_in_the_prompt_helps_the_beginner_and_harms_no_other_model(rows):
    """Two claims, error rate 1 % each: the beginner solves more with the plan (sign test of 40
    pairs); every other model loses less than `MARGIN` of its pairs (binomial tests of 40).
    """
    for model in MODELS:
        optimal = of(rows, "phase51", model=model)
        baseline = of(rows, "phase55", model=model, prompt_type="baseline")
        gain = differences(optimal, baseline, solved)
        assert len(gain) == 5 * REPEATS
        if model == "beginner":
            assert chance_of_wins(gain) < ERROR_RATE
        else:
            assert chance_of_few_losses(gain) < ERROR_RATE, model


def test_obedient_model_does_worst_with_missing_wrong_or_disordered_steps(rows):
    """One claim, error rate 1 %: each of the three flaws ends worse more often than better, against
    each of the four others and against no flaw. Sign tests of 40 pairs of outcomes."""
    by_flaw = {
        name: of(rows, "phase53", model="obedient", flaw=name) for name in workflow.flaw_set("core")
    }
    sound = of(rows, "phase51", model="obedient")
    others = [sound, *(own for name, own in by_flaw.items() if name not in WORST)]
    assert len(others) == 5
    for name in WORST:
        for other in others:
            assert chance_of_wins(differences(other, by_flaw[name], rank)) < ERROR_RATE, name


def test_repairing_model_loses_little_with_any_flaw(rows):
    """One claim, error rate 1 %: with each flaw, less than `MARGIN` of the pairs are lost to the
    sound plan (binomial tests of 40 pairs). With the three worst flaws, it solves more than the
    obedient model (sign tests of 40 pairs)."""
    sound = of(rows, "phase51", model="repairing")
    for name in workflow.flaw_set("core"):
        repaired = of(rows, "phase53", model="repairing", flaw=name)
        assert chance_of_few_losses(differences(repaired, sound, solved)) < ERROR_RATE, name
        if name in WORST:
            obeyed = of(rows, "phase53", model="obedient", flaw=name)
            assert chance_of_wins(differences(repaired, obeyed, solved)) < ERROR_RATE, name


def test_obeying_and_repairing_models_are_distinguished(rows):
    """One claim, error rate 1 %: the obedient model follows the given plan more than the sound one;
    the repairing model, the other way round. Sign tests of the difference of the two scores, 280
    cases each."""

    def leanings(model: str) -> list[float]:
        return [
            row["score.obeyed"] - row["score.repaired"]
            for name in workflow.flaw_set("core")
            for row in of(rows, "phase53", model=model, flaw=name)
        ]

    assert chance_of_wins(leanings("obedient")) < ERROR_RATE
    assert chance_of_wins(-leaning for leaning in leanings("repairing")) < ERROR_RATE


def test_open_tags_cost_nothing(rows):
    """One claim, error rate 1 %: the sloppy model, which leaves its tags open, loses less than
    `MARGIN` of 40 pairs to the obedient one, which closes them (binomial test)."""
    sloppy, obedient = of(rows, "phase51", model="sloppy"), of(rows, "phase51", model="obedient")
    assert mean(sloppy, lambda row: row["score.unclosed_tags"]) > 1
    assert mean(obedient, lambda row: row["score.unclosed_tags"]) == 0
    assert chance_of_few_losses(differences(sloppy, obedient, solved)) < ERROR_RATE


def test_a_repetition_has_the_same_task_for_every_model_prompt_and_rate(rows, run):
    messages = pq.read_table(run / "transcripts.parquet").to_pylist()
    opening = {
        m["case_id"]: m["content"] for m in messages if m["turn"] == 0 and m["role"] == "user"
    }
    tasks: dict[tuple[str, int, str | None], set[str]] = {}
    for row in rows:
        paragraphs = opening[row["case_id"]].split("\n\n")
        (task,) = [text for text in paragraphs if text.startswith("Task: ")]
        # If the task has no room for a flaw, it gets another flaw, the same for every model.
        flaw = row["param.flaw"] if row["score.substitute"] else None
        tasks.setdefault((row["param.task_type"], row["repeat"], flaw), set()).add(task)
    assert sum(flaw is None for _, _, flaw in tasks) == 5 * REPEATS
    assert {len(same) for same in tasks.values()} == {1}
    own = [same for (_, _, flaw), same in tasks.items() if flaw is None]
    assert len(set.union(*own)) == 5 * REPEATS
