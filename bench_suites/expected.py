"""The mark that all phases share, and the size of episodes that a plan assumes."""

from __future__ import annotations

from typing import Any

import pytest

EXPECTED = {"turns": 6.5, "tokens_in": 5500, "tokens_out": 150}
"""Means over 1,220 episodes of all five phases with the simulated models (6.59 turns, 5,496 prompt
tokens, 150 answer tokens). Real models write more."""


def phase(*summary: str, **own: Any) -> pytest.MarkDecorator:  # noqa: ANN401 - as the mark takes it
    """The mark of a phase: its summary, its own arguments, and the arguments of every phase."""
    return pytest.mark.ultrapar(
        summary=summary, repeats_over="task_type", cluster=("task_type",), expect=EXPECTED, **own
    )
