from __future__ import annotations

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.equivalence import ALL_MODELS, Equivalence, equivalence
from pytest_ultrapar.analysis.measured_run import CaseRow
from pytest_ultrapar.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
outcomes = st.sampled_from(["solved", "partial", "unsolved", "infra", "error", "skipped"])


def rows(given_outcomes, model="m", scores=None):
    return [
        CaseRow(
            case_id=f"{model}{number}",
            suite="s",
            model=model,
            outcome=outcome,
            timed=True,
            service_s=1.0,
            duration_s=1.0,
            started_at=NOW,
            ended_at=NOW,
            tokens_in=1,
            tokens_out=1,
            worker="gw0",
            scores={"workflow": scores[number]} if scores else {},
        )
        for number, outcome in enumerate(given_outcomes)
    ]


def drawn(rng, n, share):
    return ["solved" if rng.random() < share else "unsolved" for _ in range(n)]


def test_identical_grades_are_the_same_even_for_few_cases():
    found = equivalence(rows(["solved", "unsolved"]), rows(["solved", "unsolved"]))
    assert (found.verdict, found.n, found.n_changed) == ("same", 2, 0)
    assert found.text == "all 2 cases have the same grades in both runs"


def test_changed_answers_are_different_in_both_directions():
    good, bad = rows(["solved"] * 90 + ["unsolved"] * 10), rows(["solved"] * 60 + ["partial"] * 40)
    for base, new in ((good, bad), (bad, good)):
        found = equivalence(base, new)
        assert found.verdict == "different"
        assert found.n_changed == 40
        assert "beyond the margin of 0.020" in found.text


def test_few_changes_in_few_cases_are_undecided():
    found = equivalence(rows(["solved"] * 40), rows(["solved"] * 38 + ["unsolved"] * 2))
    assert found.verdict == "undecided"
    assert "no significant change; closest to significance:" in found.text


def test_one_changed_model_makes_runs_different():
    rng = random.Random(1)
    good = drawn(rng, 300, 0.9)
    base = [*rows(good, "a"), *rows(good, "b"), *rows(good, "c")]
    new = [*rows(good, "a"), *rows(drawn(rng, 300, 0.6), "b"), *rows(good, "c")]
    found = equivalence(base, new)
    assert found.verdict == "different"
    assert {look.model for look in found.looks if look.differs} >= {"b"}
    assert [look.model for look in found.looks] == [ALL_MODELS, "a", "b", "c"]


def test_scores_are_compared_if_outcomes_are_the_same():
    rng = random.Random(2)
    scores = [rng.random() for _ in range(200)]
    lower = [score - 0.1 for score in scores]
    found = equivalence(rows(["solved"] * 200, scores=scores), rows(["solved"] * 200, scores=lower))
    assert found.verdict == "different"
    assert "score.workflow went from" in found.text


def test_new_draws_of_the_same_model_rarely_count_as_different():
    rng = random.Random(3)
    verdicts = [
        equivalence(rows(drawn(rng, 300, 0.9)), rows(drawn(rng, 300, 0.9))).verdict
        for _ in range(100)
    ]
    assert verdicts.count("different") <= 1


def test_cases_without_a_grade_in_both_runs_are_refused():
    with pytest.raises(ConfigError, match="no case was graded in both runs"):
        equivalence(rows(["solved", "infra"]), rows(["infra", "solved"]))


@given(st.lists(st.tuples(outcomes, outcomes), min_size=1, max_size=30))
def test_verdict_is_symmetric_and_survives_json(pairs):
    base, new = rows([first for first, _ in pairs]), rows([second for _, second in pairs])
    graded = {"solved", "partial", "unsolved"}
    if not any(first in graded and second in graded for first, second in pairs):
        return
    found, turned = equivalence(base, new), equivalence(new, base)
    assert (found.verdict, found.n, found.n_changed) == (turned.verdict, turned.n, turned.n_changed)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Equivalence) == found


def test_few_changes_in_many_cases_are_the_same():
    n = 20_000
    base = rows(["solved"] * n)
    new = rows(["solved"] * (n - 20) + ["unsolved"] * 20)
    assert equivalence(base, new).verdict == "same"
