"""Policy `group-key`: flaw groups of a model on different keys (seed 000's fix for phase 5.3).

Under `model-key` the three groups of a model meet on one key, three times its load at once.
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
    """The rule for these cases: from the model's own key on, one key further per flaw group.

    The models' own keys differ, so that the groups, which are of unequal size, even out over the
    keys. Cases without a flaw group take the key of their model, as under `model-key`.
    """
    groups = list(dict.fromkeys(case.params.get(PARAMETER) for case in cases))
    places = {group: place for place, group in enumerate(g for g in groups if g is not None)}

    def rule(case: Case) -> int | None:
        own = key_of_model(case.model)
        group = case.params.get(PARAMETER)
        return own if group is None else (own or 0) + places[group]

    return rule
