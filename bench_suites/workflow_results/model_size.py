"""How many parameters a model has, as far as its name says."""

from __future__ import annotations

import re

# No letter, digit or point before it and none after: neither the 7 of `8x7b` (a mixture's total is
# another number) nor the 3 of `a3b` (active parameters), `4bit` or `2.5`.
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def model_size_b(model: str) -> float | None:
    """Billions of parameters, > 0: 72 for `qwen2.5-72b-instruct`; None where the name has none."""
    found = _SIZE.search(model)
    return (float(found[1]) or None) if found is not None else None
