"""What all phases say of themselves to pytest, and what a plan supposes of their episodes."""

from __future__ import annotations

from typing import Any

import pytest

EXPECTED = {"turns": 6.5, "tokens_in": 5500, "tokens_out": 150}
"""Means over 1,220 episodes of all five phases with the simulated models (6.59 turns, 5,496 and 150
tokens). Real models write more."""


def phase(*summary: str, **own: Any) -> pytest.MarkDecorator:  # noqa: ANN401 - as the mark takes it
    """The mark of a phase: its summary, what is its own, and what holds for all."""
    return pytest.mark.ultrapar(
        summary=summary, repeats_over="task_type", cluster=("task_type",), expect=EXPECTED, **own
    )
