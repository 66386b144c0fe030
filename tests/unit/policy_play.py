"""Run assignments with dispatch and broker, without processes, to test policies."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_ultrapar.broker.assignment import Assignment, Group, check_assignment
from pytest_ultrapar.coordinator.dispatch import Dispatch, DispatchItem, homes
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import Lane, Pool
from pytest_ultrapar.records import Case
from tests.broker_play import Play

ROOT = Path(__file__).parents[2]
QWENS = tuple(f"qwen2.5-{size}-instruct" for size in ("72b", "32b", "14b", "7b", "3b"))
AZURE = ("DeepSeek-V3-0324", "DeepSeek-R1-0528", "Llama-3.3-70B-Instruct")

Snapshot = dict[str, Lane]
"""The lanes of all requests in flight at one moment, by case id."""


def pool(name: str = "pool.toml") -> Pool:
    return load_pool(ROOT / name, environ=os.environ, overrides=Overrides())


def pool_of_two_keys() -> Pool:
    """The pool of seed 000 without its dead third key, as its comment advises."""
    text = (ROOT / "pools/seed000.toml").read_text(encoding="utf-8")
    dead = '    { name = "key2", env = "IDEALLAB_KEY_2" },\n'
    assert dead in text
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(text.replace(dead, ""))
        file.flush()
        return load_pool(Path(file.name), environ=os.environ, overrides=Overrides())


def lanes_of(pool: Pool, models: Iterable[str]) -> tuple[Lane, ...]:
    return tuple(lane for lane in pool.lanes if lane.model in set(models))


def cases(
    models: Iterable[str], suite: str = "phase52", repeats: int = 1, **params: Sequence[object]
) -> list[Case]:
    """The cells of models and parameters, in pytest's order."""
    values = [dict(zip(params, one, strict=True)) for one in itertools.product(*params.values())]
    cells = [(m, v, n) for m in models for v in values for n in range(repeats)]
    return [
        Case(
            index, f"{suite}-{index:04}", f"{suite}::{model}{own}{n}", suite, model, n, own, seed=0
        )
        for index, (model, own, n) in enumerate(cells)
    ]


def groups_of(assignment: Assignment) -> dict[str, Group]:
    return {group.name: group for group in assignment.groups}


def assert_sound(assignment: Assignment, lanes: Sequence[Lane], cases: Sequence[Case]) -> None:
    """Assert that groups share no case, each case has a lane of its model, and names exist."""
    check_assignment(assignment, [lane.lane_id for lane in lanes])
    model_of = {lane.lane_id: lane.model for lane in lanes}
    by_id = {case.case_id: case for case in cases}
    grouped = [case_id for group in assignment.groups for case_id in group.cases]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= set(by_id)
    for group in assignment.groups:
        for case_id in group.cases:
            if group.lanes is not None:
                assert by_id[case_id].model in {model_of[lane] for lane in group.lanes}, group


def carry_out(
    pool: Pool,
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    assignment: Assignment,
    workers: Sequence[str] = ("gw0", "gw1"),
) -> list[Snapshot]:
    """Run all cases with one request each, in the order of their leases; fail on a deadlock.

    Dispatch gives cases to workers as with xdist, and the broker grants leases.
    """
    play = Play(pool)
    play.assign(assignment)
    place = {
        case_id: (rank, group.name)
        for rank, group in enumerate(assignment.groups)
        for case_id in group.cases
    }
    by_id = {lane.lane_id: lane for lane in lanes}
    dispatch = Dispatch(
        [DispatchItem(c.index, c.model, *place.get(c.case_id, (-1, ""))) for c in cases],
        seats_of={lane.model: pool.seats(pool.lanes_of(lane.model)) or 9 for lane in lanes},
        home_of=homes(pool, lanes, assignment),
    )
    asked: dict[int, Case] = {}

    def take(worker: str, indices: Iterable[int]) -> None:
        for index in indices:
            case = next(one for one in cases if one.index == index)
            group = place.get(case.case_id, (-1, ""))[1]
            wish = {"group": group, "case_id": case.case_id}
            asked[play.ask(worker, case.model, **wish)] = case

    for worker in workers:
        dispatch.add_worker(worker)
    for worker, indices in dispatch.hand_out_to_all().items():
        take(worker, indices)
    moments: list[Snapshot] = []
    n_left = len(cases)
    while n_left:
        assert not play.refused
        moments.append({asked[n].case_id: by_id[one.lane] for n, one in play.leases.items()})
        if not play.leases:
            assert play.step(), f"{n_left} cases wait forever"
            continue
        first = next(iter(play.leases))
        worker, case = play.whose[first], asked[first]
        play.back(first)
        play.end(case.case_id, worker)
        dispatch.reported(worker, case.index)
        take(worker, dispatch.hand_out(worker))
        n_left -= 1
    return moments


def most_models_on_a_key(moments: Iterable[Snapshot]) -> int:
    return max(
        len({lane.model for lane in moment.values() if (lane.provider, lane.key) == key})
        for moment in moments
        for key in {(lane.provider, lane.key) for lane in moment.values()}
    )


def most_models(moments: Iterable[Snapshot]) -> int:
    return max(len({lane.model for lane in moment.values()}) for moment in moments)
