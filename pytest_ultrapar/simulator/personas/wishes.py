"""From a task's wording to steps: which tool each wish asks for, and what to look up first."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.personas.intent import LookUp
from pytest_ultrapar.simulator.personas.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.simulator.personas.prompt_text import PlannedStep
    from pytest_ultrapar.simulator.personas.situation import Situation

MOST_LOOKUPS = 6
_WORD = re.compile(r"[a-z]+")
_ENDINGS = re.compile(r"(?:ation|ator|ate|izer|ize|ier|ing|ers?|ors?|ies|es|s|e|y)$")
_SHORTEST = 3
_DISTINCTIVE = frozenset({"network", "computation", "integration", "utility"})
_CATEGORY_WORDS = _DISTINCTIVE | {"file", "data"}
_DOUBT = 0.2


def steps_from_wishes(situation: Situation, *, skill: float) -> list[Step] | LookUp:
    """The steps that the task's wording asks for, or what must be looked up before that is known.

    Tools of a plan in the prompt count as known, whatever the plan does with them; a wish that none
    of them fits is searched for. Arguments are the task's inputs.
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
    return [Step(tool, _arguments(tool, situation, planned.get(tool))) for tool in tools]


def _fitting(clause: str, tools: Iterable[str]) -> str | None:
    """The tool whose operation the clause names, unless it names another category with it."""
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
    # The same doubt at every turn: a choice once made must not change with the conversation.
    doubt = zlib.crc32(clause.encode()) / 2**32
    if len(hits) > 1 and doubt < _DOUBT * (1 - skill):
        return hits[1]
    return _fitting(clause, hits) or hits[0]


def _is_unclear(step: PlannedStep, situation: Situation) -> bool:
    """Whether the plan's own words on a step cannot be trusted to name its parameters."""
    names = step.arguments.keys()
    return not names or step.purpose.endswith("...") or not names <= situation.prompt.inputs.keys()


def _arguments(tool: str, situation: Situation, step: PlannedStep | None) -> dict[str, object]:
    inputs = situation.prompt.inputs
    seen = situation.known.get(tool)
    names = seen.parameters if seen else tuple(step.arguments if step else ())
    return {name: inputs[name] for name in names if name in inputs}


def _stem(word: str) -> str:
    stem = _ENDINGS.sub("", word)
    if len(stem) < _SHORTEST:
        return word
    return stem[:-1] if len(stem) > _SHORTEST and stem[-1] == stem[-2] else stem
