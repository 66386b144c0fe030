"""A small suite with two requests a case; its runs are stored as test data."""

import pytest

from pytest_ultrapar import prefetch

WORDS = [
    *("apple", "fig", "kiwi", "pear", "plum"),
    pytest.param("quince", marks=pytest.mark.skip(reason="not now")),
]


@prefetch
async def answers(llm, word, number) -> dict:
    messages = [{"role": "user", "content": f"Repeat this word: {word}"}]
    first = await llm.chat(messages)
    messages += [first.message, {"role": "user", "content": f"And this number: {number}"}]
    return {"word": first.text, "number": (await llm.chat(messages, max_tokens=20)).text}


@pytest.mark.ultrapar(cluster=["word"])
@pytest.mark.parametrize("number", [1, 2.5])
@pytest.mark.parametrize("word", WORDS)
def test_repeats(answers, word, number, grade):
    found = [word in answers["word"], str(number) in answers["number"]]
    outcomes = {2: "solved", 1: "partial", 0: "unsolved"}
    grade(outcomes[sum(found)], found=sum(found), long=len(word) > 4)
