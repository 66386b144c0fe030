"""Answers from two turns, rated by a judge and compared with the answers of other models.

pytest examples/two_turns --ultrapar-pool examples/two_turns/pool.toml
"""

import re
from dataclasses import dataclass

import pytest

from pytest_ultrapar import Grader, Llm, cases, prefetch

RATE = "Rate the answer from 1 to 10. Say only the number.\nQuestion: {}\nAnswer: {}"
COMPARE = "Whose answers are better? Say A, B or tie.\nQuestions: {} {}\n[A]\n{}\n[B]\n{}"
QUESTIONS = cases("questions.jsonl", "first", "then", id="id")
of_each_question = pytest.mark.parametrize(("first", "then"), QUESTIONS)


@dataclass
class Talk:
    """A model's answers in both turns, and the judge's ratings."""

    answers: list[str]
    ratings: list[float]


@prefetch
async def talk(llm: Llm, first: str, then: str) -> Talk:
    """Send both questions, and let the judge rate each answer."""
    judge, said, talk = llm.role("judge"), [], Talk([], [])
    for question in (first, then):
        said.append({"role": "user", "content": question})
        answer = await llm.chat(said)
        said.append(answer.message)
        talk.answers.append(answer.text)
        rating = await judge.chat(RATE.format(question, answer.text), temperature=0)
        talk.ratings.append(float(re.findall(r"\d+", rating.text)[0]))
    return talk


@prefetch(after=talk, across="model")
async def wins(
    llm: Llm, model: str, first: str, then: str, answers: dict[str, Talk]
) -> dict[str, float]:
    """Return the result against each other model: 1 for a win, 0.5 for a tie, otherwise 0.

    The model's own answers come first. In the other model's case they come second.
    """
    judge, won = llm.role("judge"), {}
    said_by = {name: "\n".join(talk.answers) for name, talk in answers.items()}
    own = said_by.pop(model)
    for other, theirs in said_by.items():
        said = await judge.chat(COMPARE.format(first, then, own, theirs), temperature=0)
        won[other] = {"A": 1.0, "B": 0.0}.get(said.text.strip(), 0.5)
    return won


@of_each_question
def test_ratings(talk: Talk, grade: Grader) -> None:
    """Record the ratings as scores only: the case is neither solved nor unsolved."""
    grade(None, turn1=talk.ratings[0], turn2=talk.ratings[1])


@of_each_question
def test_wins(wins: dict[str, float], grade: Grader) -> None:
    """Record the share of comparisons won. `conftest.py` reads each result from `value`."""
    grade(None, won=sum(wins.values()) / len(wins))
