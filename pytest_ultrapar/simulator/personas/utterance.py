"""How an intent is put into words, and the slips that happen on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.personas.intent import CallTool, Finish, Intent, LookUp

if TYPE_CHECKING:
    import random

SLIPS_PER_TURN = 0.5
"""Chance of a slip per turn of a model without any skill."""

_DONE = "TASK_COMPLETED"


def utter(intent: Intent, rng: random.Random, skill: float) -> str:
    """The message for an intent; the less skill, the more often it slips.

    A slip is, with equal chance: the next step instead of this one, a tool that does not exist,
    arguments that break off, an argument left out, or talk without action.
    """
    if rng.random() < SLIPS_PER_TURN * (1 - skill):
        return _slip(intent, rng)
    return plain(intent)


def plain(intent: Intent) -> str:
    """The message for an intent, without any slip."""
    if isinstance(intent, Finish):
        return f"All steps are through. {_DONE}"
    if isinstance(intent, LookUp):
        return "\n".join(
            [
                *(f"<tool_search>{query}</tool_search>" for query in intent.queries),
                *(f"<tool_info>{tool}</tool_info>" for tool in intent.tools),
            ]
        )
    return f"<tool_call>{intent.tool} {json.dumps(intent.arguments)}</tool_call>"


def _slip(intent: Intent, rng: random.Random) -> str:
    if not isinstance(intent, CallTool):
        return "Let me think about what to do here."
    kind = int(rng.random() * 5)
    if kind == 0:
        return plain(intent.following or Finish())
    if kind == 1:
        category = intent.tool.rpartition("_")[0]
        return plain(CallTool(f"{category}_processor", intent.arguments))
    text = json.dumps(intent.arguments)
    if kind == 2:  # noqa: PLR2004 - one of five slips
        return f"<tool_call>{intent.tool} {text[: len(text) // 2]}</tool_call>"
    if kind == 3:  # noqa: PLR2004 - one of five slips
        kept = dict(list(intent.arguments.items())[1:])
        return plain(CallTool(intent.tool, kept))
    return f"Next I would work on {intent.tool}."
