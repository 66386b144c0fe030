"""Tokens with several keys, models and workers: a request that has ended blocks no other."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import Limit, Pool
from tests.broker_play import Play
from tests.pools import lane, pool


def metered(name: str, tpm: float | None, workers: int | None = None) -> Limit:
    return replace(Limit(name, "instance", workers=workers), tpm=tpm)


def judge(play: Play, sizes: dict[int, int]) -> None:
    """A request that fits a free lane waits only for a waiting request that does not fit yet."""
    table = play.broker._table
    waiting = [one for state in play.broker._workers.values() for one in state.waiting.values()]
    kept = {
        limit
        for one in waiting
        for candidate in one.lane_set.lanes
        for limit in candidate.metered
        if any(
            pacer.ready_at_s(one.request.tokens, play.now_s) > play.now_s for pacer in limit.tokens
        )
    }
    for one in waiting:
        for candidate in one.lane_set.lanes:
            fits = all(
                limit not in kept and all(one.ready_s <= play.now_s for one in limit.tokens)
                for limit in candidate.metered
            )
            assert not (candidate.has_seat() and fits), f"{one.request} waits at {play.now_s}"
    for limit in table._limits.values():
        if limit.kept_until_s > play.now_s:
            assert limit.head_of_line in {one.head_of_line for one in waiting}
            assert limit.ready_s >= limit.kept_until_s
    assert len(waiting) == len(sizes) - len(play.granted)


tpms = st.none() | st.just(1000.0)
steps = st.lists(
    st.tuples(st.just("ask"), st.sampled_from("abc"), st.sampled_from("mn"), st.integers(0, 3))
    | st.tuples(st.just("back"), st.integers(0, 9), st.booleans(), st.none())
    | st.tuples(st.sampled_from(["leave", "withdraw"]), st.sampled_from("abc"))
    | st.tuples(st.just("wait"), st.sampled_from([0.1, 5.0, 40.0])),
    max_size=40,
)


def two_models(of_key: list[float | None], of_instance: list[float | None]) -> Pool:
    """Lanes of two models on two keys; lanes of the same key share its limit."""
    lanes, limits = [], []
    for number, tpm in enumerate(of_key):
        limits.append(metered(f"k{number}", tpm, workers=4))
    for (model, number), tpm in zip(itertools.product("mn", range(2)), of_instance, strict=True):
        name = f"{model}{number}"
        limits.append(metered(name, tpm, workers=2))
        lanes.append(lane(name, f"k{number}", f"k{number}", name, model=model))
    return pool(lanes, *limits)


@given(
    of_key=st.lists(tpms, min_size=2, max_size=2),
    of_instance=st.lists(tpms, min_size=4, max_size=4),
    asked=steps,
)
def test_no_request_waits_for_one_that_has_stopped_waiting(of_key, of_instance, asked):
    play = Play(two_models(of_key, of_instance))
    play.connect("a", "b", "c")
    sizes: dict[int, int] = {}

    def forget(numbers: list[int]) -> None:
        for number in numbers:
            del sizes[number]

    def waiting_of(worker: str) -> list[int]:
        return list(play.broker._workers[worker].waiting)

    for step in asked:
        if step[0] == "ask":
            _, worker, model, size = step
            tokens = (1, 10, 100, 900)[size]
            number = play.ask(worker, model, case_id=str(len(sizes)), tokens=tokens)
            sizes[number] = tokens
        elif step[0] == "back" and play.leases:
            number = sorted(play.leases)[step[1] % len(play.leases)]
            play.back(number, "ok" if step[2] else "unsent")
        elif step[0] == "leave":
            forget(waiting_of(step[1]))
            play.leave(step[1])
            play.connect(step[1])
        elif step[0] == "withdraw":
            for number in waiting_of(step[1])[:1]:
                forget([number])
                play.withdraw(step[1], number)
        elif step[0] == "wait":
            play.wait(step[1])
        judge(play, sizes)
    for _ in range(200):
        for number in sorted(play.leases):
            play.back(number)
        play.wait(5.0)
    assert set(play.granted) >= set(sizes)


def test_request_served_elsewhere_leaves_the_lane_to_those_that_fit():
    lanes = [lane("A", "k", "a"), lane("B", "k", "b")]
    play = Play(pool(lanes, metered("a", 1000.0), metered("b", None, workers=2)))
    play.ask(case_id="first", tokens=500)
    play.wait(40.0)
    play.ask(case_id="elsewhere", tokens=100)
    large = play.ask(case_id="large", tokens=900)
    assert play.lane(large) == "p/B/k"
    assert play.lane(play.ask(case_id="small", tokens=10)) is not None


def test_request_of_a_dead_worker_keeps_no_other_waiting():
    play = Play(pool([lane("A", "k", "a")], metered("a", 1000.0)))
    play.ask("gw0", case_id="first", tokens=100)
    play.wait(20.0)
    play.ask("gw1", case_id="large", tokens=1000)
    small = play.ask("gw2", case_id="small", tokens=10)
    assert play.lane(small) is None
    play.leave("gw1")
    assert play.lane(small) == "p/A/k"
