"""What an engine that ends early, or is stopped, leaves to others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Lease
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.engine.engine import Engine, EngineSettings
from pytest_ultrapar.engine.episode import Work
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.pool.model import LaneId

LANE = LaneId("p/a/k0")
FULL = OSError("the disk is full")


class Port:
    """A broker's port that grants at once, and notes what comes back."""

    def __init__(self):
        self.n_granted = 0
        self.given_back = []

    def acquire(self, request):
        del request
        future = asyncio.get_running_loop().create_future()
        self.grant(future)
        return future

    def grant(self, future):
        if not future.cancelled():
            self.n_granted += 1
            now_s = MonotonicClock().now_s()
            future.set_result(Lease(self.n_granted, LANE, now_s, now_s + 600, 0.0, 0.0, 1))

    def release(self, lease, outcome, feedback=NO_FEEDBACK):
        del lease, feedback
        self.given_back.append(outcome)

    def episode_ended(self, case_id, group): ...

    async def close(self): ...


class Watching:
    """A watch that fails to take note of an episode's end."""

    def __getattr__(self, name):
        return lambda *_: None

    def episode_ended(self, ended):
        raise FULL


def engine_on(port, *, record=lambda records: records, ended=lambda _: None, watch=None):
    async def connect():
        return port

    settings = EngineSettings(
        worker="main",
        connect=connect,
        endpoints={},
        retry=RetryPolicy(3),
        episode_timeout_s=60.0,
        most_open=9,
        clock=MonotonicClock(),
        shown=str,
        masked=bytes,
        watch=watch,
    )
    lost, is_lost = [], threading.Event()

    def note_lost(error):
        lost.append(str(error))
        is_lost.set()

    engine = Engine(settings, record=record, ended=ended, sync=lambda: None, lost=note_lost)
    engine.start()
    return engine, lost, is_lost


def work(index):
    async def start(llm):
        del llm
        return index

    return Work(index, f"case {index}", "m", "", 0, start)


def refuse(_):
    raise FULL


@pytest.mark.parametrize("how", [{"ended": refuse}, {"watch": Watching()}], ids=["ended", "watch"])
def test_engine_that_cannot_announce_an_episode_ends_early_and_says_so(how):
    engine, lost, is_lost = engine_on(Port(), **how)
    engine.submit([work(0)])
    assert is_lost.wait(60)
    engine.stop()
    assert lost == [str(FULL)]


def test_leases_of_episodes_that_never_began_are_given_back():
    refusals = [FULL]

    def record(records):
        if refusals:
            raise refusals.pop()
        return records

    port = Port()
    engine, lost, is_lost = engine_on(port, record=record)
    engine.submit([work(0), work(1)])
    assert is_lost.wait(60)
    engine.stop()
    assert lost == [str(FULL)]
    assert port.given_back == ["unsent"] * port.n_granted == ["unsent"] * 2


class LatePort(Port):
    """Grants some rounds of the loop after the engine is told to stop."""

    def __init__(self, n_rounds):
        super().__init__()
        self.n_rounds = n_rounds
        self.asked = threading.Event()

    def acquire(self, request):
        del request
        self.future = asyncio.get_running_loop().create_future()
        self.asked.set()
        return self.future

    def grant_later(self, n_rounds):
        if n_rounds:
            asyncio.get_running_loop().call_soon(self.grant_later, n_rounds - 1)
        else:
            self.grant(self.future)


@pytest.mark.parametrize("n_rounds", range(6))
def test_lease_that_comes_while_the_engine_stops_is_given_back(n_rounds):
    port = LatePort(n_rounds)
    engine, lost, _ = engine_on(port)
    engine.submit([work(0)])
    assert port.asked.wait(60)
    engine._loop.call_soon_threadsafe(port.grant_later, n_rounds)
    engine.stop()
    assert port.given_back == ["unsent"] * port.n_granted
    assert lost == []
