"""What a prompt of the workflow suites says: the task, its inputs and perhaps a plan.

Read from the visible text alone, as a model would: nothing here knows the suites' code or data.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

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
    """A step as the plan shows it.

    Attributes:
        arguments: By name; of a parameter named twice the last value.
    """

    tool: str
    purpose: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the opening message says.

    Attributes:
        clauses: What the task asks for, one wish after the other.
        inputs: The values given, by name.
        plan: Steps in order; empty where no plan is shown.
        wants_reasoning: Whether thinking aloud is asked for.
    """

    clauses: tuple[str, ...]
    inputs: dict[str, object]
    plan: tuple[PlannedStep, ...]
    wants_reasoning: bool


@lru_cache(maxsize=2048)
def read_prompt(text: str) -> Prompt:
    """What an opening message says; everything is empty where it says nothing of the kind."""
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
