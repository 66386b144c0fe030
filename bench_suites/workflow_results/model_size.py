"""The number of a model's parameters, from its name."""

from __future__ import annotations

import re

# No letter, digit or point precedes the size, and no letter or digit follows it. This excludes the
# 7 of `8x7b` (a mixture's total differs), the 3 of `a3b` (active parameters), `4bit` and `2.5`.
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def model_size_b(model: str) -> float | None:
    """Billions of parameters, > 0: 72 for `qwen2.5-72b-instruct`; None if the name has no size."""
    found = _SIZE.search(model)
    return (float(found[1]) or None) if found is not None else None
