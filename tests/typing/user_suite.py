"""A suite as users write it, with all annotations: mypy reads it, but it never runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import pytest

from pytest_ultrapar import (
    CaseInfo,
    Grader,
    InfraError,
    Llm,
    PromptRefused,
    Reply,
    ToolCall,
    prefetch,
)


@dataclass(frozen=True)
class Talk:
    """The value that the episode returns."""

    answer: str
    tokens: int | None


@prefetch
async def talk(llm: Llm, case: CaseInfo, model: str, question: str) -> Talk:
    """Use everything that an episode may use."""
    messages = [{"role": "user", "content": f"{question} ({case.seed}, {case.repeat}, {model})"}]
    try:
        reply = await llm.chat(messages, temperature=0.0, max_tokens=20)
    except PromptRefused as refused:
        assert_type(refused.kind, str)
        raise
    except InfraError as error:
        assert_type(error.kind, str)
        raise
    assert_type(reply, Reply)
    assert_type(reply.text, str)
    assert_type(reply.tokens_out, int | None)
    assert_type(reply.choices, tuple[Reply, ...])
    assert_type(reply.id, str | None)
    assert_type(reply.tool_calls, tuple[ToolCall, ...])
    messages.append(reply.message)
    for call in reply.tool_calls:
        assert_type((call.call_id, call.name, call.arguments), tuple[str, str, str])
        messages.append({"role": "tool", "tool_call_id": call.call_id, "content": "42"})
    return Talk(reply.text, reply.tokens_out)


@pytest.mark.ultrapar(models="qwen*", summary=("model", "question"))
@pytest.mark.parametrize("question", ["Why?", "Where?"])
def test_talk(talk: Talk, grade: Grader) -> None:
    """Grade the finished episode."""
    grade("solved" if talk.answer else "unsolved", length=len(talk.answer))


def test_talk_is_exact(talk: Talk, grade: Grader) -> None:
    """Grade with a condition."""
    grade(talk.answer == "42", exact=True)


@pytest.mark.parametrize("question", ["Why?", "Where?"])
async def test_answers_at_once(llm: Llm, question: str, grade: Grader) -> None:
    """Send a request and grade the answer in one function."""
    reply = await llm.chat(question, system="Be brief.", temperature=0.0)
    assert_type(reply, Reply)
    grade(bool(reply.text), length=len(reply.text))
    assert question not in reply.text
