"""What is said to the simulated models: the same words from the tool and from the raw client."""

from __future__ import annotations

N_TURNS = 6
"""Turns of a case of several turns."""

FILLER = "The quick brown fox jumps over the lazy dog near the quiet river bank. " * 12


def opening(number: int) -> dict[str, str]:
    """The first message of a case: 0.9 kB, different for every case."""
    return {"role": "user", "content": f"{number}: {FILLER}"}


def answer(text: str) -> dict[str, str]:
    """The model's message, as the next request repeats it."""
    return {"role": "assistant", "content": text}


def follow_up(turn: int) -> dict[str, str]:
    """The message after the answer of that turn, counted from 0."""
    return {"role": "user", "content": f"go on, {turn}"}
