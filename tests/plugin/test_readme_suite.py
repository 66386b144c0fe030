"""A suite by a user who has only read the page about prefetching."""

from __future__ import annotations

SUITE = '''
from dataclasses import dataclass, field

import pytest
from pytest_ultrapar import prefetch


@dataclass
class Talk:
    question: str
    answers: list[str] = field(default_factory=list)
    seed: int = 0


@pytest.fixture(scope="session")
def book():
    return {"capital": "say Paris", "river": "say Seine"}


@prefetch
async def talk(llm, model, case, book, topic, style="short") -> Talk:
    """Two questions, one after the other."""
    found = Talk(book[topic], seed=case.seed)
    messages = [{"role": "system", "content": f"You are {model}, {style}."}]
    for _ in range(2):
        messages.append({"role": "user", "content": found.question})
        reply = await llm.chat(messages, temperature=0.0, max_tokens=20)
        messages.append({"role": "assistant", "content": reply.text})
        found.answers.append(reply.text)
    return found


@pytest.mark.parametrize("topic", ["capital", "river"])
@pytest.mark.parametrize("wanted", ["Paris"])
def test_knows(talk, wanted, model):
    assert isinstance(talk, Talk)
    assert len(talk.answers) == 2
    assert model in ("m", "n")
    assert wanted in talk.answers[0]


@pytest.mark.ultrapar(models="m")
@pytest.mark.parametrize("topic", ["river"])
def test_is_graded(talk, grade, tmp_path, monkeypatch):
    share = talk.answers.count("Seine") / len(talk.answers)
    grade("solved" if share == 1 else "partial", share=share)


@prefetch
async def number(llm, prompt) -> float | None:
    reply = await llm.chat([{"role": "user", "content": prompt}])
    return float(reply.text) if reply.text != "none" else None


@pytest.fixture
def doubled(number):
    """A fixture of the suite that uses a prefetched value."""
    return number and number * 2


@pytest.mark.parametrize("prompt, expected", [("say 1.5", 3.0), ("say none", None)])
def test_doubled(doubled, expected):
    assert doubled == expected
'''


def test_suite_written_from_the_page_works(project):
    project.write_pool(models=("m", "n"))
    project.pytester.path.joinpath("test_talk.py").write_text(SUITE)
    result = project.run("-n0", "--ultrapar-repeats=2", "--ultrapar-seed=11")
    # Two models, two repetitions: half of the four `test_knows` ask for the wrong thing.
    assert result.ret == 1
    result.assert_outcomes(failed=4)
    assert result.parseoutcomes()["solved"] == 14
    rows = {row["nodeid"].split("::")[1]: row for row in project.rows()}
    assert len(rows) == 18
    graded = rows["test_is_graded[m-river-r1]"]
    assert (graded["outcome"], graded["score.share"], graded["n_turns"]) == ("solved", 1.0, 2)
    assert (graded["model"], graded["repeat"], graded["param.topic"]) == ("m", 1, "river")
    assert "test_is_graded[n-river-r1]" not in rows
    wrong = rows["test_knows[n-Paris-river-r0]"]
    assert (wrong["outcome"], wrong["test"]) == ("unsolved", "failed")
    assert len({row["seed"] for row in rows.values()}) == 18
    said = [
        (row["turn"], row["role"], row["content"])
        for row in project.rows("transcripts")
        if row["case_id"] == wrong["case_id"]
    ]
    assert said == [
        (0, "system", "You are n, short."),
        (0, "user", "say Seine"),
        (0, "assistant", "Seine"),
        (1, "user", "say Seine"),
        (1, "assistant", "Seine"),
    ]
    assert len(project.rows("attempts")) == len(project.server.prompts) == 10 * 2 + 8


def test_models_are_selected_by_mark_and_option(project):
    project.write_pool(models=("m", "n"))
    project.pytester.path.joinpath("test_talk.py").write_text(SUITE)
    listed = project.run_here("--collect-only", "-q", "--ultrapar-model=n")
    assert listed.ret == 0
    names = [line.split("::")[1] for line in listed.outlines if "::" in line]
    assert names == [
        "test_knows[n-Paris-capital-r0]",
        "test_knows[n-Paris-river-r0]",
        "test_doubled[n-say 1.5-3.0-r0]",
        "test_doubled[n-say none-None-r0]",
    ]
    assert project.run_here("--collect-only", "-q", "--ultrapar-model=n", "-k", "graded").ret == 5


def test_models_parametrised_by_hand_are_matched_with_the_pool(project):
    project.write_pool(models=("m", "n"))
    project.suite(
        """
@pytest.mark.parametrize("model", ["n", "m"])
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer, model): ...

@pytest.mark.parametrize("model", ["n"])
def test_plain(model): ...
"""
    )
    listed = project.run_here("--collect-only", "-q", "--ultrapar-model=m")
    assert [line.split("::")[1] for line in listed.outlines if "::" in line] == [
        "test_it[say a-m-r0]",
        "test_plain[n]",
    ]
    project.suite(
        """
@pytest.mark.parametrize("model", ["n", "gpt"])
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer, model): ...
"""
    )
    refused = project.run_here("--collect-only")
    project.refusal(refused)
    refused.stderr.fnmatch_lines(
        ["*has no model from the pool (model is 'gpt')*the pool's models are m, n"]
    )
