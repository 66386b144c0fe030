"""Mode `phase`: the processes of the scripts as groups of an assignment."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from bench_suites.original_scripts.key_rule import lanes_on_key
from bench_suites.original_scripts.process import cases_by_process
from bench_suites.original_scripts.waves import Variant, starts_s, waves
from pytest_ultrapar import Assignment, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.original_scripts.key_rule import KeyRule
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Case


def phase_assignment(
    pool: Pool,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    *,
    rule: KeyRule,
    variant: Variant = "document",
    scale: float = 1.0,
) -> Assignment:
    """The assignment that repeats the documented concurrency of each phase, one after the other.

    Each process becomes a group. It uses the lanes of its shard: the model's lanes on the key that
    the rule names. In the variant `document`, only the first deployment's lanes are in the shard.
    The requests in flight of a process are limited to the workers of its shard, which are the seats
    of these lanes in the pool. Each process has this limit separately, since the processes were
    independent. The limits of the pool apply to all processes together.

    Args:
        pool: The order of models and keys, and the workers of a shard.
        lanes: All lanes of the run.
        cases: All cases of the run.
        rule: The rule for the key of a case; all cases of a process get the same key.
        variant: The document to follow.
        scale: Factor for the seconds between staggered starts, >= 0.

    Raises:
        ConfigError: A suite is not a phase.
    """
    by_id = {case.case_id: case for case in cases}
    by_process = cases_by_process(pool.models, cases)
    groups: list[Group] = []
    before: tuple[str, ...] = ()
    for _, own in groupby(by_process, key=lambda process: process.suite):
        for wave in waves(list(own), variant):
            for process, start_s in zip(wave, starts_s(wave), strict=True):
                members = by_process[process]
                shard = _shard(pool, lanes, by_id[members[0]], rule, variant)
                groups.append(
                    Group(
                        process.name,
                        members,
                        tuple(lane.lane_id for lane in shard),
                        after=before,
                        start_after_s=start_s * scale,
                        at_once=pool.seats(shard),
                    )
                )
            before = tuple(process.name for process in wave)
    return Assignment(groups=tuple(groups))


def _shard(
    pool: Pool, lanes: Sequence[Lane], case: Case, rule: KeyRule, variant: Variant
) -> tuple[Lane, ...]:
    own = lanes_on_key(pool, lanes, case.model, rule(case))
    if variant == "ultra-document":
        return own
    return tuple(lane for lane in own if lane.instance == own[0].instance)
