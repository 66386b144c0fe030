"""Decide the next action of a persona, and write its message."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.simulator.personas.reading import Answered, PlannedStep, Situation


@dataclass(frozen=True, slots=True)
class LookUp:
    """The intent to search for tools, and to ask about tools."""

    queries: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallTool:
    """The intent to call a tool.

    Attributes:
        following: The call for the next step; None if this is the last step.
    """

    tool: str
    arguments: dict[str, object]
    following: CallTool | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The intent to say that everything is done."""


Intent = LookUp | CallTool | Finish


_ARGUMENT_ERRORS = frozenset({"INVALID_INPUT", "FILE_NOT_FOUND"})
_UNKNOWN = re.compile(r"allowed are ([\w, ]+)$")
_MISSING = re.compile(r"^parameter (\w+) is missing; (.*) is required")
_WRONG = re.compile(r"^parameter (\w+)(?: must be|: there is nothing)")
_EXAMPLE = re.compile(r"(?:one of|such as) \"?([^\",]+)")


def next_call(
    steps: Sequence[CallTool],
    answered: Sequence[Answered],
    inputs: Mapping[str, object],
    *,
    patience: int,
) -> Intent:
    """Return the call that is due; `Finish` if no call is left.

    A step is done if it succeeded, if it failed `patience` times, or if a later step succeeded.
    Like real models, a persona does not return to a step that it skipped.
    """
    due, failures = _due(steps, answered, patience)
    if due >= len(steps):
        return Finish()
    step = steps[due]
    arguments = step.arguments
    for failure in failures:
        if failure.error in _ARGUMENT_ERRORS:
            arguments = corrected(arguments, failure.message, inputs)
    following = steps[due + 1] if due + 1 < len(steps) else None
    return CallTool(step.tool, arguments, following)


def corrected(
    arguments: Mapping[str, object], message: str, inputs: Mapping[str, object]
) -> dict[str, object]:
    """Correct refused arguments: use the allowed names, with values from the task's inputs."""
    allowed = _UNKNOWN.search(message)
    names = allowed[1].split(", ") if allowed else list(arguments)
    missing = _MISSING.search(message)
    if missing and missing[1] not in names:
        names.append(missing[1])
    better = {name: inputs.get(name, arguments.get(name)) for name in names}
    blamed = missing or _WRONG.search(message)
    if blamed and blamed[1] not in inputs:
        example = _EXAMPLE.search(message)
        better[blamed[1]] = example[1] if example else None
    return {name: value for name, value in better.items() if value is not None}


def _due(
    steps: Sequence[CallTool], answered: Sequence[Answered], patience: int
) -> tuple[int, list[Answered]]:
    """The index of the step that is due, and the failed calls for this step so far."""
    due = 0
    failures: list[Answered] = []
    for answer in answered:
        if due >= len(steps):
            break
        if answer.tool == steps[due].tool:
            if answer.error is not None:
                failures.append(answer)
            if answer.error is None or len(failures) >= patience:
                due, failures = due + 1, []
        elif answer.error is None:
            later = [i for i in range(due, len(steps)) if steps[i].tool == answer.tool]
            if later:
                due, failures = later[0] + 1, []
    return due, failures


MOST_LOOKUPS = 6
_WORD = re.compile(r"[a-z]+")
_ENDINGS = re.compile(r"(?:ation|ator|ate|izer|ize|ier|ing|ers?|ors?|ies|es|s|e|y)$")
_SHORTEST = 3
_DISTINCTIVE = frozenset({"network", "computation", "integration", "utility"})
_CATEGORY_WORDS = _DISTINCTIVE | {"file", "data"}
_DOUBT = 0.2


def steps_from_wishes(situation: Situation, *, skill: float) -> list[CallTool] | LookUp:
    """Return the steps that the task's wording asks for, or the lookups that must come first.

    Tools from a plan in the prompt are regarded as known, even if the plan misuses them. If no
    known tool fits a part of the task, the persona searches for one. Arguments are the task's
    inputs.
    """
    prompt = situation.prompt
    planned = {step.tool: step for step in prompt.plan}
    tools: list[str] = []
    queries: list[str] = []
    for clause in prompt.clauses:
        found = _fitting(clause, planned)
        if found is None and clause in situation.hits:
            found = _chosen(clause, situation, skill)
        elif found is None:
            queries.append(clause)
            continue
        if found is not None and found not in tools:
            tools.append(found)
    asked = situation.described | situation.known.keys()
    unclear = [
        tool for tool in tools if tool not in asked and _is_unclear(planned[tool], situation)
    ]
    if queries or unclear:
        queries = queries[:MOST_LOOKUPS]
        return LookUp(tuple(queries), tuple(unclear[: MOST_LOOKUPS - len(queries)]))
    return [CallTool(tool, _arguments(tool, situation, planned.get(tool))) for tool in tools]


def _fitting(clause: str, tools: Iterable[str]) -> str | None:
    """The tool whose operation the clause names, unless the clause names only other categories."""
    words = _WORD.findall(clause.lower())
    stems = [_stem(word) for word in words]
    best, best_fit = None, 0
    for tool in tools:
        category, _, operation = tool.rpartition("_")
        stem = _stem(operation)
        if stem not in stems:
            continue
        before = words[max(stems.index(stem) - 1, 0)]
        named = {before} & _CATEGORY_WORDS or _DISTINCTIVE & set(words)
        own = set(category.split("_"))
        if named and not named & own:
            continue
        fit = 1 + len(own & set(words))
        if fit > best_fit:
            best, best_fit = tool, fit
    return best


def _chosen(clause: str, situation: Situation, skill: float) -> str | None:
    hits = [hit.tool for hit in situation.hits[clause]]
    if not hits:
        return None
    # The doubt is the same at every turn, so that a choice does not change during a conversation.
    doubt = zlib.crc32(clause.encode()) / 2**32
    if len(hits) > 1 and doubt < _DOUBT * (1 - skill):
        return hits[1]
    return _fitting(clause, hits) or hits[0]


def _is_unclear(step: PlannedStep, situation: Situation) -> bool:
    """Whether the plan's text for a step is too unreliable to take parameters from it."""
    names = step.arguments.keys()
    return not names or step.purpose.endswith("...") or not names <= situation.prompt.inputs.keys()


def _arguments(tool: str, situation: Situation, step: PlannedStep | None) -> dict[str, object]:
    inputs = situation.prompt.inputs
    seen = situation.known.get(tool)
    names = seen.parameters if seen else tuple(step.arguments if step else ())
    return {name: inputs[name] for name in names if name in inputs}


# All prompts of a suite together contain only a few different words.
@lru_cache(maxsize=4096)
def _stem(word: str) -> str:
    stem = _ENDINGS.sub("", word)
    if len(stem) < _SHORTEST:
        return word
    return stem[:-1] if len(stem) > _SHORTEST and stem[-1] == stem[-2] else stem


SLIPS_PER_TURN = 0.5
"""The probability that a model with skill 0 makes a mistake in one turn."""


def utter(intent: Intent, rng: random.Random, skill: float) -> str:
    """Write the message for an intent. With less skill, mistakes are more frequent.

    A mistake replaces the intended call. Five mistakes are equally likely: the next step, a tool
    that does not exist, arguments that break off, a missing argument, and talk without action.
    """
    if rng.random() < SLIPS_PER_TURN * (1 - skill):
        return _slip(intent, rng)
    return plain(intent)


def plain(intent: Intent) -> str:
    """Write the message for an intent, without mistakes."""
    if isinstance(intent, Finish):
        return "All steps are through. TASK_COMPLETED"
    if isinstance(intent, LookUp):
        asked = [f"<tool_search>{query}</tool_search>" for query in intent.queries]
        return "\n".join(asked + [f"<tool_info>{tool}</tool_info>" for tool in intent.tools])
    return f"<tool_call>{intent.tool} {json.dumps(intent.arguments)}</tool_call>"


def _slip(intent: Intent, rng: random.Random) -> str:
    if not isinstance(intent, CallTool):
        return "Let me think about what to do here."
    category, text = intent.tool.rpartition("_")[0], json.dumps(intent.arguments)
    slips = (
        plain(intent.following or Finish()),
        plain(CallTool(f"{category}_processor", intent.arguments)),
        f"<tool_call>{intent.tool} {text[: len(text) // 2]}</tool_call>",
        plain(CallTool(intent.tool, dict(list(intent.arguments.items())[1:]))),
        f"Next I would work on {intent.tool}.",
    )
    return slips[int(rng.random() * len(slips))]
