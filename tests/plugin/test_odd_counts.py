"""An odd token count of a provider costs at most that count, never the run."""

from __future__ import annotations

import pytest

SUITE = """
PROMPTS = ["count {figure} yes 0", *(f"say yes {{n}}" for n in range(1, 8))]

@pytest.mark.parametrize("prompt", PROMPTS)
def test_it(answer):
    assert answer.startswith("yes")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "key"),
    [("1e19", ""), ("1e30", ", tpm = 10_000_000"), ("1e400", "")],
    ids=["no int64", "no wire integer", "no number"],
)
def test_run_with_an_odd_count_solves_all_and_has_its_tables(project, figure, key):
    project.write_pool(key=key)
    project.suite(SUITE.format(figure=figure))
    assert project.run("-n0").ret == 0
    rows = project.rows()
    assert [row["outcome"] for row in rows] == ["solved"] * 8
    assert sorted(row["tokens_in"] or 0 for row in rows) == [0] + [3] * 7
    assert {row["tokens_out"] for row in rows} == {5}
    assert len(project.rows("attempts")) == 8


def test_largest_accepted_count_is_in_the_tables(project):
    project.suite(SUITE.format(figure="1e9"))
    assert project.run("-n0").ret == 0
    assert max(row["tokens_in"] for row in project.rows()) == 10**9
