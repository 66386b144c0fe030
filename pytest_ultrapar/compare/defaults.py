"""The rules of a gate with a baseline where none is given."""

from __future__ import annotations

DEFAULT_RULES = (
    "throughput>=-7%",
    "service<=+7%",
    "kept>=0.98",
    "coverage>=-0.02",
    "same_answers",
)
"""Besides `DEFAULT_RULE_OF_MODEL` for each model.

7 % is half way between nothing and a server that takes 15 % longer, by their ratios: on two shared
cores that others kept busy, runs of the same code differed by up to 5 %
(docs/compare-and-gate.md)."""

DEFAULT_RULE_OF_MODEL = "solved_rate[model=...]>=-0.02"
"""Its intervals hold for all models together."""
