"""Read a persona's input: the prompt, the messages between turns, and the state of the task."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.persona import ChatMessage


_TASK = re.compile(r"^Task: (.*)$", re.MULTILINE)
_INPUTS = re.compile(r"^Inputs:\n((?:- .*\n?)*)", re.MULTILINE)
_INPUT = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
_STEP = re.compile(
    r"^\d+\. (\w+)\n   Purpose: (.*)\n   Parameters: (.*)\n   Needs: (.*)$", re.MULTILINE
)
_PARAMETER = re.compile(r"(\w+) = ")
_CLAUSE_ENDS = re.compile(r"\.(?:\s+|$)|; ")
_OPENINGS = re.compile(
    r"^(?:(?:first|then|finally|furthermore|and on that foundation|to|we want to|"
    r"the undertaking is to|the mandate of this initiative is to)\b\s*)+",
    re.IGNORECASE,
)
_REASONING = "Think step by step"
_decode_prefix = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the plan.

    Attributes:
        arguments: The arguments by name; if a parameter is repeated, its last value counts.
    """

    tool: str
    purpose: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The content of the opening message.

    Attributes:
        clauses: The parts of the task; each of them asks for one thing.
        inputs: The values that the prompt provides, by name.
        plan: The steps of the plan, in order; empty if the prompt contains no plan.
        wants_reasoning: Whether the prompt requests reasoning.
    """

    clauses: tuple[str, ...]
    inputs: dict[str, object]
    plan: tuple[PlannedStep, ...]
    wants_reasoning: bool


@lru_cache(maxsize=2048)
def read_prompt(text: str) -> Prompt:
    """Read the content of an opening message. Missing parts are empty."""
    task = _TASK.search(text)
    inputs = _INPUTS.search(text)
    return Prompt(
        clauses=_clauses(task[1]) if task else (),
        inputs={
            found[1]: _value(found[2]) for found in _INPUT.finditer(inputs[1] if inputs else "")
        },
        plan=tuple(
            PlannedStep(found[1], found[2], _arguments(found[3])) for found in _STEP.finditer(text)
        ),
        wants_reasoning=_REASONING in text,
    )


def _clauses(description: str) -> tuple[str, ...]:
    pieces = (_OPENINGS.sub("", piece.strip()) for piece in _CLAUSE_ENDS.split(description))
    return tuple(piece for piece in pieces if piece)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _arguments(text: str) -> dict[str, object]:
    arguments: dict[str, object] = {}
    position = 0
    while (found := _PARAMETER.search(text, position)) is not None:
        try:
            arguments[found[1]], position = _decode_prefix(text, found.end())
        except ValueError:
            position = found.end()
    return arguments


_SEARCH = re.compile(r'^Tools for "(.*)":', re.MULTILINE)
_HIT = re.compile(r"^\d+\. (\w+): .* Parameters: (.*)\. Needs: (.*)\.$", re.MULTILINE)
_DESCRIBED = re.compile(r"^Tool (\w+): .*\nParameters:\n((?:- .*\n)*)", re.MULTILINE)
_RESULT = re.compile(r"^Result of (\S+): (?:success|failed \((\w+)\))\n(.*)$", re.MULTILINE)
_TOLD_PARAMETER = re.compile(r"(\w+) \((?:string|integer|number|boolean|array)(, required)?\)")


@dataclass(frozen=True, slots=True)
class Seen:
    """A tool that a search or a description showed.

    Attributes:
        parameters: The names of its parameters.
    """

    tool: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and its result.

    Attributes:
        error: The error code; None if the call succeeded.
        message: The first line of the answer below the line that gives the result.
    """

    tool: str
    error: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """The content of one message between two of the model's turns.

    Attributes:
        hits: The tools that each query found, by query, best match first.
        described: The tools that the model asked about.
    """

    hits: dict[str, tuple[Seen, ...]]
    described: tuple[Seen, ...]
    answered: tuple[Answered, ...]


@lru_cache(maxsize=2048)
def read_feedback(text: str) -> Feedback:
    """Read the content of a message. Missing parts are empty."""
    _, *parts = _SEARCH.split(text)
    hits = {
        query: tuple(Seen(hit[1], _names(hit[2])) for hit in _HIT.finditer(block))
        for query, block in zip(parts[::2], parts[1::2], strict=True)
    }
    described = tuple(Seen(found[1], _names(found[2])) for found in _DESCRIBED.finditer(text))
    answered = tuple(Answered(found[1], found[2], found[3]) for found in _RESULT.finditer(text))
    return Feedback(hits, described, answered)


def _names(text: str) -> tuple[str, ...]:
    return tuple(found[1] for found in _TOLD_PARAMETER.finditer(text))


@dataclass(frozen=True, slots=True)
class Situation:
    """The information that a persona has at its turn.

    Attributes:
        hits: The tools that each query found, by query.
        known: The tools that were shown so far, by name, with their parameters.
        described: The names of the tools that `tool_info` described.
        answered: All calls so far, with their results.
    """

    prompt: Prompt
    hits: dict[str, tuple[Seen, ...]]
    known: dict[str, Seen]
    described: frozenset[str]
    answered: tuple[Answered, ...]


def read_situation(messages: Sequence[ChatMessage]) -> Situation:
    """Read the state of a conversation. Any conversation is accepted."""
    users = [message.content for message in messages if message.role in {"user", "tool"}]
    hits: dict[str, tuple[Seen, ...]] = {}
    known: dict[str, Seen] = {}
    described: set[str] = set()
    answered: list[Answered] = []
    for text in users[1:]:
        feedback = read_feedback(text)
        hits.update(feedback.hits)
        for seen in (*chain.from_iterable(feedback.hits.values()), *feedback.described):
            known[seen.tool] = seen
        described.update(seen.tool for seen in feedback.described)
        answered += feedback.answered
    return Situation(
        prompt=read_prompt(users[0] if users else ""),
        hits=hits,
        known=known,
        described=frozenset(described),
        answered=tuple(answered),
    )
