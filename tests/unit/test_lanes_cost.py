"""The broker's work per lease does not grow with the queue. It is counted in calls, not time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

if TYPE_CHECKING:
    from collections.abc import Callable


def n_calls(run: Callable[[], object]) -> int:
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def busy(n_waiting: int, *groups: Group) -> Play:
    keys = ("k0", "k1", "k2")
    lanes = [lane(model, key, "pool", key, model=model) for model in "mno" for key in keys]
    limits = [Limit(key, "key", 5) for key in keys]
    play = Play(pool(lanes, Limit("pool", "pool", 12), *limits))
    if groups:
        play.assign(Assignment(groups=groups))
    for n in range(n_waiting + 12):
        group = groups[-1].name if groups and n >= 12 else ""
        play.ask(f"gw{n % 15}", "mno"[n % 3], group=group, case_id=f"c{n}")
    return play


def calls_of_a_hundred_leases(play: Play) -> int:
    def run() -> None:
        for _ in range(100):
            play.wait(0.01)
            play.back(next(iter(play.leases)))
            play.ask("gw3", "m", case_id="new")

    return n_calls(run)


@pytest.mark.slow
def test_cost_of_a_lease_is_the_same_with_100_and_20000_waiting():
    few, many = calls_of_a_hundred_leases(busy(100)), calls_of_a_hundred_leases(busy(20_000))
    assert many <= 1.2 * few


def test_cost_of_a_lease_is_the_same_with_20000_waiting_for_a_group():
    shut = Group("later", (), start_after_s=1e6)
    few = calls_of_a_hundred_leases(busy(100, shut))
    many = calls_of_a_hundred_leases(busy(20_000, shut))
    assert many <= 1.2 * few


@pytest.mark.slow
def test_cost_of_withdrawing_does_not_grow_with_the_queue():
    def withdraw_all(play: Play) -> int:
        waiting = [n for n in play.whose if n not in play.leases]

        def run() -> None:
            for n in waiting:
                play.broker.withdraw(play.whose[n], n, play.now_s)

        return n_calls(run) // len(waiting)

    assert withdraw_all(busy(20_000)) <= 1.2 * withdraw_all(busy(200))


def test_dead_worker_with_thousands_of_requests_costs_each_request_once():
    def leave(n_waiting: int) -> float:
        play = busy(n_waiting)
        return n_calls(lambda: play.leave("gw0")) / n_waiting

    assert leave(20_000) <= 1.2 * leave(500)
