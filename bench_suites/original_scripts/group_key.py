"""Policy `group-key`: each flaw group of a model on a different key.

Under `model-key` the three flaw groups of a model run on one key at the same time, with three times
the load. Source: script seed 000, the fix for phase 5.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_suites.original_scripts.model_key import key_of_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.original_scripts.key_rule import KeyRule
    from pytest_ultrapar.records import Case

PARAMETER = "flaw_group"


def group_key(cases: Sequence[Case]) -> KeyRule:
    """The rule for these cases: a model's flaw groups use consecutive keys, beginning with its own.

    A model without its own key begins with the first key. The models' own keys differ, so the flaw
    groups, which differ in size, are balanced over the keys. A case without a flaw group uses the
    key of its model, as under `model-key`.
    """
    groups = list(dict.fromkeys(case.params.get(PARAMETER) for case in cases))
    places = {group: place for place, group in enumerate(g for g in groups if g is not None)}

    def rule(case: Case) -> int | None:
        own = key_of_model(case.model)
        group = case.params.get(PARAMETER)
        return own if group is None else (own or 0) + places[group]

    return rule
