"""The broker in-process: futures, cancelling, timer, closing; on asyncio's loop and uvloop."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from pytest_ultrapar.broker.interface import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import NoLaneError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.system.clock import MonotonicClock
from tests.pools import lane, pool
from tests.property.broker_judge import check_rate

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a story with a broker of one lane; fail on any error that the loop reports."""

    def run(story: Any, **limits: Any) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            broken: list[Any] = []
            loop.set_exception_handler(lambda _, context: broken.append(context))
            of = pool([lane("a", "k0", "k0")], Limit("k0", "key", **limits))
            broker = LocalBroker(BrokerSettings(of), MonotonicClock(), loop, worker="gw0")
            await asyncio.wait_for(story(broker), 120)
            await broker.close()
            assert broken == []

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_timer_serves_a_rate_without_any_call(play):
    async def story(broker: LocalBroker) -> None:
        leases = await asyncio.gather(*(broker.acquire(LeaseRequest(n, "m")) for n in range(6)))
        check_rate([lease.granted_s for lease in leases], 50.0, 1.0)

    play(story, qps=50.0)


def test_cancelled_future_withdraws_its_request(play):
    async def story(broker: LocalBroker) -> None:
        first = await broker.acquire(LeaseRequest(1, "m"))
        cancelled, heir = broker.acquire(LeaseRequest(2, "m")), broker.acquire(LeaseRequest(3, "m"))
        cancelled.cancel()
        await settled()
        assert (await broker.status()).waiting == 1
        broker.release(first, "ok")
        assert await heir

    play(story, workers=1)


def test_lease_for_a_future_cancelled_in_the_same_turn_goes_to_the_next(play):
    async def story(broker: LocalBroker) -> None:
        first = await broker.acquire(LeaseRequest(1, "m"))
        cancelled, heir = broker.acquire(LeaseRequest(2, "m")), broker.acquire(LeaseRequest(3, "m"))
        cancelled.cancel()
        broker.release(first, "ok")
        assert await heir
        await settled()
        assert (await broker.status()).lanes[0].outcomes == {"ok": 1, "unsent": 1}

    play(story, workers=1)


def test_task_cancelled_between_grant_and_wake_up_leaves_no_lease_behind(play):
    async def story(broker: LocalBroker) -> None:
        first = await broker.acquire(LeaseRequest(1, "m"))
        task = asyncio.create_task(acquire_lease(broker, LeaseRequest(2, "m")))
        await settled()
        broker.release(first, "ok")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await broker.status()).in_flight == 0

    play(story, workers=1)


def test_task_cancelled_while_waiting_leaves_no_request_behind(play):
    async def story(broker: LocalBroker) -> None:
        await broker.acquire(LeaseRequest(1, "m"))
        task = asyncio.create_task(acquire_lease(broker, LeaseRequest(2, "m")))
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled()
        assert (await broker.status()).waiting == 0

    play(story, workers=1)


def test_model_without_lanes_fails_the_future(play):
    async def story(broker: LocalBroker) -> None:
        first = await broker.acquire(LeaseRequest(1, "m"))
        waiting = broker.acquire(LeaseRequest(2, "m"))
        broker.release(first, "auth")
        for future in (waiting, broker.acquire(LeaseRequest(3, "m"))):
            with pytest.raises(NoLaneError, match="key p/k0 was refused"):
                await future

    play(story, workers=1)


def test_closing_fails_waiting_and_later_requests(play):
    async def story(broker: LocalBroker) -> None:
        held = await broker.acquire(LeaseRequest(1, "m"))
        waiting = broker.acquire(LeaseRequest(2, "m"))
        await broker.close()
        await broker.close()
        for future in (waiting, broker.acquire(LeaseRequest(3, "m"))):
            with pytest.raises(ConnectionError):
                await future
        broker.release(held, "ok")
        broker.episode_ended("a")
        with pytest.raises(ConnectionError):
            await broker.status()

    play(story, workers=1)


def test_many_tasks_share_the_seats_and_all_are_served(play):
    async def story(broker: LocalBroker) -> None:
        in_flight = peak = 0

        async def one(n: int) -> None:
            nonlocal in_flight, peak
            lease = await acquire_lease(broker, LeaseRequest(n, "m", opens=True, case_id=str(n)))
            in_flight += 1
            peak = max(peak, in_flight)
            await settled()
            in_flight -= 1
            broker.release(lease, "ok")
            broker.episode_ended(str(n))

        await asyncio.gather(*(one(n) for n in range(500)))
        status = await broker.status()
        assert (peak, status.peak_in_flight, status.ended_episodes) == (7, 7, 500)
        assert status.open_episodes == status.in_flight == 0

    play(story, workers=7)


class SetClock:
    """A clock that stays where a test sets it."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s


def test_request_cancelled_while_its_lane_is_removed_hides_no_refusal_of_others():
    async def story() -> None:
        loop = asyncio.get_running_loop()
        broken: list[Any] = []
        loop.set_exception_handler(lambda _, context: broken.append(context))
        of = pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=1))
        clock = SetClock()
        broker = LocalBroker(BrokerSettings(of, 4.0), clock, loop, worker="gw0")
        for number in range(5):
            broker.release(await broker.acquire(LeaseRequest(number, "m")), "timeout")
        waiting = [broker.acquire(LeaseRequest(number, "m")) for number in range(5, 8)]
        # The deadline of an episode coincides with the removal of a lane that was silent that long.
        clock.at_s += 4.0
        waiting[0].cancel()
        await settled()
        for future in waiting[1:]:
            assert isinstance(future.exception(), NoLaneError)
        assert broken == []
        await broker.close()

    asyncio.run(story())


class LoopThatEndsAsItIsAsked(asyncio.SelectorEventLoop):
    """Sets an event when another thread schedules a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(*args, **kwargs)
        self.asked.set()
        return handle


def test_another_thread_gets_the_status_even_if_the_loop_ends_in_that_turn():
    loop = LoopThatEndsAsItIsAsked()
    made: queue.Queue[LocalBroker] = queue.Queue()

    of = pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=1))

    async def until_asked() -> None:
        made.put(LocalBroker(BrokerSettings(of), MonotonicClock(), loop, worker="gw0"))
        loop.asked.wait(20)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(until_asked())

    thread = threading.Thread(target=run)
    thread.start()
    broker = made.get(timeout=20)
    status = broker.status_from_thread(20)
    thread.join()
    assert status is not None
    assert [lane.lane for lane in status.lanes] == ["p/a/k0"]
    assert broker.status_from_thread(20) is None
