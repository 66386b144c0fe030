"""Says why a run of the phases has no cases: pytest itself only counts what was deselected."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_suites.selection import Selection

QWEN = "qwen*"
"""The models of phase 5.2."""


def reasons(phases: Iterable[str], chosen: Selection, models: Sequence[str]) -> list[str]:
    """A line for each phase that the options leave no case.

    Args:
        phases: Those that the command line names.
        chosen: What its options select.
        models: The selected ones.
    """
    return [reason for phase in phases if (reason := _reason(phase, chosen, models))]


def _reason(phase: str, chosen: Selection, models: Sequence[str]) -> str | None:
    if phase == "phase53":
        if not chosen.flaws:
            return "phase53 runs flawed_* prompts only, and --prompt-type names none"
        return None
    if chosen.named_prompt_types == ():
        return f"{phase} runs no flawed_* prompts, and --prompt-type names nothing else"
    if phase == "phase52" and not any(fnmatchcase(model, QWEN) for model in models):
        return f"phase52 runs models that match {QWEN} only; selected are {', '.join(models)}"
    return None
