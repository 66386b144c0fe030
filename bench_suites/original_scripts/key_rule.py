"""Rules that name one key for a case, and the lanes of that key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from pytest_ultrapar import Assignment, Group

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case

KeyRule = Callable[["Case"], int | None]
"""The index of a case's key at its provider, from 0 in the order of the pool file. Indexes beyond
the last key start again at 0. If the index is None, the broker chooses the key."""


def any_key(case: Case) -> None:
    """No rule: a case uses the least busy key of its model (script seed 001)."""
    del case


def lanes_on_key(
    pool: Pool, lanes: Sequence[Lane], model: str, index: int | None
) -> tuple[Lane, ...]:
    """The model's lanes on the key with that index, for each of its providers.

    A rule never makes a case impossible: if the provider has one key, or if that key does not serve
    the model, the result is all lanes of the model. The same is true if the index is None.
    """
    own = tuple(lane for lane in lanes if lane.model == model)
    if index is None:
        return own
    keys = {provider.name: [key.name for key in provider.keys] for provider in pool.providers}
    found = tuple(
        lane for lane in own if lane.key == keys[lane.provider][index % len(keys[lane.provider])]
    )
    return found or own


def bind(pool: Pool, lanes: Sequence[Lane], cases: Sequence[Case], rule: KeyRule) -> Assignment:
    """The rule as an assignment: the cases of a model on the same key form a group.

    All groups run at the same time. A case belongs to no group if the rule names no key for it, or
    if only one key can serve it.
    """
    allowed = cache(partial(lanes_on_key, pool, lanes))
    members: dict[tuple[str, tuple[Lane, ...]], list[str]] = {}
    for case in cases:
        own = allowed(case.model, rule(case))
        if len(own) < len(allowed(case.model, None)):
            members.setdefault((case.model, own), []).append(case.case_id)
    groups = []
    for (model, own), ids in members.items():
        keys = ", ".join(dict.fromkeys(f"{lane.provider}/{lane.key}" for lane in own))
        groups.append(Group(f"{model} on {keys}", tuple(ids), tuple(lane.lane_id for lane in own)))
    return Assignment(groups=tuple(groups))
