"""Explains why a run of the phases has no cases. pytest only counts the deselected items."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_suites.selection import Selection

QWEN = "qwen*"
"""The models of phase 5.2."""


def reasons(phases: Iterable[str], chosen: Selection, models: Sequence[str]) -> list[str]:
    """A line for each phase without a case.

    Args:
        phases: The phases that the command line names.
        chosen: The selection that its options make.
        models: The selected models.
    """
    return [reason for phase in phases if (reason := _reason(phase, chosen, models))]


def _reason(phase: str, chosen: Selection, models: Sequence[str]) -> str | None:
    if phase == "phase53":
        if not chosen.flaws:
            return "phase53 runs only flawed_* prompts; choose one with --prompt-type"
        return None
    if chosen.named_prompt_types == ():
        return f"{phase} runs no flawed_* prompts; choose another type with --prompt-type"
    if phase == "phase52" and not any(fnmatchcase(model, QWEN) for model in models):
        return f"phase52 runs only models that match {QWEN}; you selected {', '.join(models)}"
    return None
