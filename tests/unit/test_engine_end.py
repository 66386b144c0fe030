"""An engine that starts before its broker, ends early, is stopped, or survives bad episodes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import threading

import msgspec
import pytest

from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Lease
from pytest_ultrapar.engine import engine as engine_module
from pytest_ultrapar.engine import episode as episode_module
from pytest_ultrapar.engine.engine import Engine, EngineSettings, LoopLag
from pytest_ultrapar.engine.episode import Work
from pytest_ultrapar.engine.loop import engine_context, new_loop, run_to_end
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.system.clock import MonotonicClock

LANE = LaneId("p/a/k0")
FULL = OSError("the disk is full")


@pytest.fixture(scope="module", autouse=True)
def own_garbage():
    """Log errors of tasks here: Python 3.11 cannot parse while garbage collection logs them."""
    yield
    gc.collect()


class Port:
    """A broker's port that grants immediately and notes the outcomes of returned leases."""

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

    def episode_ended(self, *case_ids): ...

    async def close(self): ...


def engine_on(
    port=None, *, connect=None, record=lambda records: records, ended=lambda _: None, timeout_s=60.0
):
    """A started engine, the errors that ended it, and an event for the first error."""

    async def at_once():
        return port

    settings = EngineSettings(
        worker="main",
        connect=connect or at_once,
        endpoints={},
        retry=RetryPolicy(3),
        episode_timeout_s=timeout_s,
        most_open=9,
        clock=MonotonicClock(),
        shown=str,
        masked=bytes,
    )
    lost, is_lost = [], threading.Event()

    def note_lost(error):
        lost.append(error)
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


def test_engine_that_cannot_announce_an_episode_ends_early_with_the_error():
    engine, lost, is_lost = engine_on(Port(), ended=refuse)
    engine.submit([work(0)])
    assert is_lost.wait(60)
    engine.stop()
    assert lost == [FULL]


def test_engine_that_waits_for_its_broker_can_be_stopped():
    asked, cancelled = threading.Event(), threading.Event()

    async def connect():
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    engine, lost, _ = engine_on(connect=connect)
    assert asked.wait(60)
    engine.stop()
    assert cancelled.wait(60)
    engine.note_skipped("case")  # does not block
    assert lost == []


def test_loop_beats_only_while_an_episode_is_open(monkeypatch):
    third, rests, beats = threading.Event(), threading.Event(), []
    beat = LoopLag.beat

    def noted(loop_lag, *, busy):
        beats.append(busy)
        if len(beats) == 3:
            third.set()
        if not busy:
            rests.set()
        beat(loop_lag, busy=busy)

    async def start(llm):
        del llm
        await asyncio.to_thread(third.wait, 60)

    monkeypatch.setattr(LoopLag, "beat", noted)
    ended = threading.Event()
    engine, lost, _ = engine_on(Port(), ended=lambda _: ended.set())
    assert beats == []
    for number in range(2):
        beats.clear()
        for event in (third, rests, ended):
            event.clear()
        engine.submit([Work(number, f"case {number}", "m", "", 0, start)])
        assert ended.wait(60)
        assert rests.wait(60)
        assert beats == [*[True] * (len(beats) - 1), False]
    engine.stop()
    assert lost == []


def test_one_message_reports_all_episodes_that_end_together():
    told, left, all_ended = [], {0, 1, 2}, threading.Event()

    class Listening(Port):
        def episode_ended(self, *case_ids):
            told.append(case_ids)

    def note(ended):
        left.difference_update(work.index for work, _ in ended)
        if not left:
            all_ended.set()

    engine, lost, _ = engine_on(Listening(), ended=note)
    engine.submit([work(0), work(1), work(2)])
    assert all_ended.wait(60)
    engine.stop()
    assert (told, lost) == ([("case 0", "case 1", "case 2")], [])


@pytest.mark.parametrize("error", [ConnectionError("no broker"), LookupError()])
def test_engine_without_a_broker_reports_the_error_and_does_not_block(error):
    async def connect():
        raise error

    engine, lost, is_lost = engine_on(connect=connect)
    engine.submit([])
    assert is_lost.wait(60)
    assert lost == [error]
    engine.stop()


@pytest.mark.parametrize("kind", [EngineSettings, EngineParts])
def test_functions_that_mask_secrets_are_required_settings(kind):
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    assert {"shown", "masked"} <= required


def test_leases_of_episodes_that_never_began_are_returned():
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
    assert lost == [FULL]
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
def test_lease_that_comes_while_the_engine_stops_is_returned(n_rounds):
    port = LatePort(n_rounds)
    engine, lost, _ = engine_on(port)
    engine.submit([work(0)])
    assert port.asked.wait(60)
    engine._loop.call_soon_threadsafe(port.grant_later, n_rounds)
    engine.stop()
    assert port.given_back == ["unsent"] * port.n_granted
    assert lost == []


client = contextvars.ContextVar("client")


class Own(BaseException):
    """An exception that `except Exception` does not catch."""


def raises(kind):
    raise kind


async def in_task(kind):
    raises(kind)


async def awaits_task(kind):
    await asyncio.create_task(in_task(kind))


async def leaves_task(kind):
    left = asyncio.create_task(in_task(kind))
    await asyncio.sleep(0.01)
    assert left.done()


async def leaves_callback(kind):
    asyncio.get_running_loop().call_soon(raises, kind)
    await asyncio.sleep(0.01)


async def stops_loop():
    asyncio.get_running_loop().stop()


async def stops_loop_from_a_thread():
    loop = asyncio.get_running_loop()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(loop.stop))
    thread.start()
    await asyncio.to_thread(thread.join)


async def cancels_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def cancels_all():
    for task in asyncio.all_tasks():
        task.cancel()


async def cancels_all_from_a_thread():
    loop, refused = asyncio.get_running_loop(), []

    def cancel():
        refused.append(asyncio.run_coroutine_threadsafe(cancels_all(), loop).exception())

    thread = threading.Thread(target=cancel)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert isinstance(refused[0], RuntimeError)


async def spoils_client():
    client.get().close = client.get().conversation = None


async def never_ends():
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(60)


async def answers_when_cancelled():
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_kind(request, monkeypatch):
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.mark.usefixtures("loop_kind")
@pytest.mark.parametrize(
    ("hostile", "kind"),
    [
        *(((in_task, kind), kind.__name__) for kind in (Own, GeneratorExit)),
        ((in_task, KeyboardInterrupt), "KeyboardInterrupt"),
        *(((awaits_task, kind), kind.__name__) for kind in (Own, SystemExit, KeyboardInterrupt)),
        *(((leaves_task, kind), None) for kind in (Own, SystemExit, KeyboardInterrupt)),
        *(((leaves_callback, kind), None) for kind in (Own, SystemExit, KeyboardInterrupt)),
        ((stops_loop,), None),
        ((stops_loop_from_a_thread,), None),
        ((cancels_itself,), "CancelledError"),
        ((cancels_all,), "RuntimeError"),
        ((cancels_all_from_a_thread,), None),
        ((spoils_client,), "AttributeError"),
        ((never_ends,), "timeout"),
        ((answers_when_cancelled,), "timeout"),
    ],
)
def test_hostile_episode_ends_neither_other_episodes_nor_the_engine(hostile, kind, monkeypatch):
    monkeypatch.setattr(episode_module, "CLEAN_UP_S", 0.05)
    monkeypatch.setattr(engine_module, "_STOP_S", 0.2)
    ended, n_begun, news = {}, [], threading.Semaphore(0)

    def record(records):
        ended.update({one.case_id: one for one in records if isinstance(one, EpisodeEnded)})
        return records

    async def bad(llm):
        client.set(llm)
        await asyncio.sleep(0.01)
        assert len(n_begun) == 2
        await hostile[0](*hostile[1:])

    async def good(llm):
        del llm
        n_begun.append(1)
        await asyncio.sleep(0.05)
        return await asyncio.to_thread(len, "ok")

    def works(**starts):
        return [Work(0, name, "m", "", 0, start) for name, start in starts.items()]

    port = Port()
    engine, lost, _ = engine_on(
        port,
        record=record,
        ended=lambda works: news.release(len(works)),
        timeout_s=1.0 if kind == "timeout" else 60.0,
    )
    engine.submit(works(bad=bad, one=good, two=good))
    for _ in range(3):
        assert news.acquire(timeout=60)
    engine.submit(works(late=good))
    assert news.acquire(timeout=60)
    engine.stop()
    assert lost == []
    found = {case_id: (one.ending, one.kind) for case_id, one in ended.items()}
    ending = {None: "returned", "timeout": "infra"}.get(kind, "error")
    good_one = ("returned", None)
    assert found == {"bad": (ending, kind), "one": good_one, "two": good_one, "late": good_one}
    assert len(port.given_back) == port.n_granted
    if ending == "error" and hostile[0] is not spoils_client:
        assert f", in {hostile[0].__name__}\n" in ended["bad"].detail


def test_create_task_without_a_coroutine_fails_as_in_asyncio(loop_kind):
    async def wrong():
        context = contextvars.Context()
        with pytest.raises(TypeError, match="coroutine was expected"):
            context.run(asyncio.get_running_loop().create_task, asyncio.Event())

    def play():
        with asyncio.Runner(loop_factory=new_loop) as runner:
            run_to_end(runner.get_loop(), wrong())

    engine_context().run(play)
