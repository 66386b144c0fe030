"""The shapes that the five phases must show, from a run of all of them on the simulated provider.

What the simulated models answer depends on seeds alone, so a figure here is the same in every run:
a test that passed once fails only when something has changed. Were the seeds drawn anew, a
comparison of shares that asks for a distance of Z standard errors would find one that is not there
with a chance of 1.4e-3.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench_suites import workflow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REPEATS = 12
MODELS = ("obedient", "repairing", "sloppy", "beginner")
SUITES = [f"bench_suites/phase5{number}" for number in (1, 3, 4, 5)]
Z = 3.0

Row = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All five phases as one run: 4 models, 5 task types, 12 repetitions."""
    out = tmp_path_factory.mktemp("shapes") / "run"
    command = [
        *(sys.executable, "-m", "pytest", *SUITES, "-n2", "-q", "-p", "no:cacheprovider"),
        *("--ultrapar-pool", "pools/shapes.toml", "--ultrapar-repeats", str(REPEATS)),
        *("--ultrapar-out", str(out)),
    ]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def rows(run: Path) -> list[Row]:
    return pq.read_table(run / "results.parquet").to_pylist()


def of(rows: list[Row], suites: str, **wanted: object) -> list[Row]:
    """Rows of some suites with these values; 5.1's cells are part of 5.2, 5.4 and 5.5."""
    names = {"model": "model"}
    return [
        row
        for row in rows
        if row["suite"] in suites.split()
        and all(row[names.get(name, f"param.{name}")] == value for name, value in wanted.items())
    ]


def share(rows: list[Row], outcome: str) -> float:
    return sum(row["outcome"] == outcome for row in rows) / len(rows)


def distance(more: list[Row], less: list[Row], outcome: str) -> float:
    """How many standard errors of the difference the first share lies above the second."""
    p, q = share(more, outcome), share(less, outcome)
    pooled = (p * len(more) + q * len(less)) / (len(more) + len(less))
    error = math.sqrt(pooled * (1 - pooled) * (1 / len(more) + 1 / len(less)))
    return (p - q) / error if error else 0.0


def mean(rows: list[Row], value: Callable[[Row], float]) -> float:
    return sum(map(value, rows)) / len(rows)


def test_all_cells_were_asked_once(rows):
    assert {name: len(of(rows, name)) for name in ("phase51", "phase53", "phase54", "phase55")} == {
        "phase51": 4 * 5 * REPEATS,
        "phase53": 4 * 7 * 5 * REPEATS,
        "phase54": 4 * 4 * 5 * REPEATS,
        "phase55": 4 * 2 * 5 * REPEATS,
    }
    assert {row["outcome"] for row in rows} <= {"solved", "partial", "unsolved"}


def test_success_falls_and_partial_rises_as_tools_fail_more(rows):
    by_rate = {
        rate: of(rows, "phase51 phase54", tool_success_rate=rate)
        for rate in (0.9, 0.8, 0.7, 0.6, 0.5)
    }
    assert {len(own) for own in by_rate.values()} == {4 * 5 * REPEATS}
    solved = [share(own, "solved") for own in by_rate.values()]
    assert solved == sorted(solved, reverse=True)
    assert distance(by_rate[0.9], by_rate[0.5], "solved") > Z
    assert distance(by_rate[0.5], by_rate[0.9], "partial") > Z


def test_a_plan_in_the_prompt_helps_who_needs_it_and_harms_nobody(rows):
    for model in MODELS:
        optimal = of(rows, "phase51", model=model)
        baseline = of(rows, "phase55", model=model, prompt_type="baseline")
        assert len(optimal) == len(baseline) == 5 * REPEATS
        assert distance(baseline, optimal, "solved") < Z
        if model == "beginner":
            assert distance(optimal, baseline, "solved") > Z


def test_obedient_does_worst_where_steps_are_missing_or_tools_wrong(rows):
    def weighted(own: list[Row]) -> float:
        return share(own, "solved") + 0.5 * share(own, "partial")

    by_flaw = {
        name: of(rows, "phase53", model="obedient", flaw=name) for name in workflow.flaw_set("core")
    }
    worst = sorted(by_flaw, key=lambda name: weighted(by_flaw[name]))[:2]
    assert set(worst) == {"missing_step", "tool_misuse"}
    sound = of(rows, "phase51", model="obedient")
    for name in worst:
        assert distance(sound, by_flaw[name], "solved") > Z


def test_repairing_hardly_suffers(rows):
    sound = of(rows, "phase51", model="repairing")
    flawed = of(rows, "phase53", model="repairing")
    assert share(flawed, "solved") > share(sound, "solved") - 0.1
    for name in ("missing_step", "tool_misuse"):
        repaired = of(rows, "phase53", model="repairing", flaw=name)
        obeyed = of(rows, "phase53", model="obedient", flaw=name)
        assert distance(repaired, obeyed, "solved") > Z


def test_obeying_and_repairing_are_told_apart(rows):
    """Who obeys follows the plan given more than the sound one; who repairs, the other way round.

    Per case the difference of the two scores; the means lie many standard errors apart.
    """

    def leaning(model: str) -> tuple[float, float]:
        own = [
            row["score.workflow"] - row["score.workflow_sound"]
            for name in ("missing_step", "tool_misuse", "sequence_disorder")
            for row in of(rows, "phase53", model=model, flaw=name)
        ]
        middle = sum(own) / len(own)
        variance = sum((value - middle) ** 2 for value in own) / (len(own) - 1)
        return middle, math.sqrt(variance / len(own))

    (obedient, error_1), (repairing, error_2) = leaning("obedient"), leaning("repairing")
    assert obedient > 0 > repairing
    assert obedient - repairing > Z * math.hypot(error_1, error_2)


def test_open_tags_cost_nothing(rows):
    sloppy, obedient = of(rows, "phase51", model="sloppy"), of(rows, "phase51", model="obedient")
    assert mean(sloppy, lambda row: row["score.unclosed_tags"]) > 1
    assert mean(obedient, lambda row: row["score.unclosed_tags"]) == 0
    assert share(sloppy, "solved") >= share(obedient, "solved") - 0.05


def test_a_repetition_has_the_same_task_for_every_model_prompt_and_rate(rows, run):
    messages = pq.read_table(run / "transcripts.parquet").to_pylist()
    opening = {
        m["case_id"]: m["content"] for m in messages if m["turn"] == 0 and m["role"] == "user"
    }
    tasks: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        paragraphs = opening[row["case_id"]].split("\n\n")
        (task,) = [text for text in paragraphs if text.startswith("Task: ")]
        tasks.setdefault((row["param.task_type"], row["repeat"]), set()).add(task)
    assert len(tasks) == 5 * REPEATS
    assert {len(same) for same in tasks.values()} == {1}
    assert len(set.union(*tasks.values())) == 5 * REPEATS
