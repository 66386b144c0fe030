"""What a plan supposes of the phases' episodes before any has run."""

from __future__ import annotations

EXPECTED = {"turns": 6.5, "tokens_in": 5500, "tokens_out": 150}
"""Means over 1,220 episodes of all five phases with the simulated models (6.59 turns, 5,496 and 150
tokens). Real models write more."""
