"""The personas for the workflow suites: one follows its plan, one repairs it, one is careless.

Each persona reads only the text of the conversation, as a model does, and finds its plan there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.persona import PersonaReply
from pytest_ultrapar.simulator.personas.acting import (
    CallTool,
    Intent,
    LookUp,
    next_call,
    steps_from_wishes,
    utter,
)
from pytest_ultrapar.simulator.personas.reading import Situation, read_situation

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.persona import ChatMessage

OBEDIENT_PATIENCE = 3
"""How many times an obedient model tries a step before it skips the step."""
REPAIRING_PATIENCE = 5
_ASKS = 0.08
"""The probability that a repairing model asks about a tool before it first calls the tool."""
_REASONS_ONLY = 0.25
_CALL = "<tool_call>"
_PROSE = ("Let me see. The next thing to do is this:\n", "I continue with the task.\n\n", "Sure! ")


def obedient(messages: Sequence[ChatMessage], rng: random.Random, skill: float) -> PersonaReply:
    """Follow the plan step by step, and repeat a failed call a few times.

    If arguments are refused, correct them from the task's inputs. Without a plan, search for the
    tools that the task's wording asks for.
    """
    situation = read_situation(messages)
    return PersonaReply(_say(_obey(situation, skill), situation, rng, skill))


def repairing(messages: Sequence[ChatMessage], rng: random.Random, skill: float) -> PersonaReply:
    """Do what the task's wording requests, and use the plan if it helps.

    Search for the tools for steps that the plan lacks. Repeated, misplaced and irrelevant steps in
    the plan do not matter, because the wording decides. Sometimes ask about a tool in the message
    that first calls it.
    """
    situation = read_situation(messages)
    intent = _work_out(situation, skill)
    said = _say(intent, situation, rng, skill)
    return PersonaReply(_asking(said, intent, situation, rng))


def sloppy(messages: Sequence[ChatMessage], rng: random.Random, skill: float) -> PersonaReply:
    """Act like an obedient model, but leave tags unclosed, and sometimes add prose."""
    situation = read_situation(messages)
    said = _say(_obey(situation, skill), situation, rng, skill)
    for tag in ("</tool_call>", "</tool_search>", "</tool_info>"):
        said = said.replace(tag, "")
    prose = _PROSE[int(rng.random() * len(_PROSE))] if rng.random() < 1 / 3 else ""
    return PersonaReply(prose + said)


def _obey(situation: Situation, skill: float) -> Intent:
    plan = situation.prompt.plan
    if not plan:
        return _work_out(situation, skill)
    steps = [CallTool(step.tool, step.arguments) for step in plan]
    return next_call(steps, situation.answered, situation.prompt.inputs, patience=OBEDIENT_PATIENCE)


def _work_out(situation: Situation, skill: float) -> Intent:
    steps = steps_from_wishes(situation, skill=skill)
    if isinstance(steps, LookUp):
        return steps
    return next_call(
        steps, situation.answered, situation.prompt.inputs, patience=REPAIRING_PATIENCE
    )


def _asking(said: str, intent: Intent, situation: Situation, rng: random.Random) -> str:
    """The message, sometimes with a question about the tool that it calls (in the same turn)."""
    if not isinstance(intent, CallTool) or rng.random() >= _ASKS:
        return said
    if intent.tool in situation.described | {answer.tool for answer in situation.answered}:
        return said
    return said.replace(_CALL, f"<tool_info>{intent.tool}</tool_info>\n{_CALL}", 1)


def _say(intent: Intent, situation: Situation, rng: random.Random, skill: float) -> str:
    said = utter(intent, rng, skill)
    if not situation.prompt.wants_reasoning:
        return said
    reasoning = "Reasoning: I look at what there is and take the next step of the job."
    # A model that reasons aloud may stop after its reasoning.
    if rng.random() < _REASONS_ONLY * (1 - skill):
        return reasoning
    return f"{reasoning}\n{said}"
