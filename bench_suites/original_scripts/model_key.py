"""Policy `model-key`: the size of a Qwen model determines its key (script seeds 000 and 002).

Five models use three keys: 72b and 7b share key0, 32b and 3b share key1. They conflict in phase
5.2, in which all five run at the same time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.records import Case

KEY_OF_SIZE = {"72b": 0, "32b": 1, "14b": 2, "7b": 0, "3b": 1}
"""Source: script seed 002, "Qwen models, shards"."""

# Not the "2.5" of the family's name, and not the "2b" in "72b".
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?b)(?![a-z0-9])", re.IGNORECASE)


def is_qwen(model: str) -> bool:
    """Whether a model belongs to the family that shares keys."""
    return "qwen" in model.lower()


def key_of_model(model: str) -> int | None:
    """The index of a Qwen model's key, by its size; None for every other model."""
    size = _SIZE.search(model) if is_qwen(model) else None
    return KEY_OF_SIZE.get(size[1].lower()) if size is not None else None


def model_key(case: Case) -> int | None:
    """The index of the key that the case's model uses."""
    return key_of_model(case.model)
