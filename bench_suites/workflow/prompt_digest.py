"""A digest of the prompts. It changes if the texts or rules of the prompts change."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

from bench_suites.workflow.flaw import FLAWS, FlawError, draw_flawed, flaw
from bench_suites.workflow.library import TASKS
from bench_suites.workflow.prompts import PROMPT_TYPES, build_messages
from bench_suites.workflow.task import DIFFICULTIES, TASK_TYPES

if TYPE_CHECKING:
    from bench_suites.workflow.plan import Plan
    from bench_suites.workflow.prompts import PromptType
    from bench_suites.workflow.task import Difficulty, Task


def prompt_digest() -> str:
    """A digest of the prompts of one task of each type, as 16 hexadecimal digits.

    It covers all prompt types, difficulties and flaws, so that a run does not use answers to other
    prompts. `TASKS.digest` covers the texts of all tasks.
    """
    whole = hashlib.blake2b(digest_size=8)
    for task_type in TASK_TYPES:
        own = TASKS.draw(task_type, 0, 0)
        arms: list[tuple[PromptType, Difficulty, Task, Plan]] = [
            (name, difficulty, own, own.plan)
            for name in PROMPT_TYPES
            for difficulty in DIFFICULTIES
        ]
        for name in FLAWS:
            # In an edited library a flaw may change no task; then no prompt contains it.
            with suppress(FlawError):
                drawn = draw_flawed(flaw(name), task_type, 0, 0)
                arms.append(("optimal", "easy", drawn.task, drawn.plan))
        for prompt_type, difficulty, task, plan in arms:
            shown = build_messages(task, prompt_type=prompt_type, difficulty=difficulty, plan=plan)
            whole.update(repr(shown).encode())
    return whole.hexdigest()
