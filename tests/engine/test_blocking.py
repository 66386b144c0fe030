"""Blocking functions: their threads, their client, and the error they get at the end."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import httpx
import pytest

from tests.engine.native_play import CHAT, EVENT_STREAM, LAST, event, play, until
from tests.raw_server import json_response

SAID: ContextVar[str] = ContextVar("said", default="")
ANSWER = {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}


async def fine(peer, _):
    await peer.send(json_response(ANSWER))


async def never(peer, _):
    await peer.reader.read()


def test_function_runs_in_its_own_thread_with_the_variables_of_its_case(tmp_path):
    async def scene(told):
        SAID.set("of the case")
        loop_thread = threading.get_ident()

        def function(number, *, word):
            SAID.set("of the function")
            assert threading.current_thread().daemon
            return threading.get_ident(), number, word

        ident, *given = await told.llm.run(function, 1, word="a")
        assert given == [1, "a"]
        assert ident != loop_thread
        assert SAID.get() == "of the case"
        assert await told.llm.run(SAID.get) == "of the case"

    play(tmp_path, fine, scene)


def test_async_function_is_refused(tmp_path):
    async def scene(told):
        with pytest.raises(TypeError, match="write `await function"):
            await told.llm.run(fine, None, None)

    play(tmp_path, fine, scene)


def test_all_called_functions_run_at_the_same_time(tmp_path):
    async def scene(told):
        all_there = threading.Barrier(50)
        await asyncio.gather(*(told.llm.run(all_there.wait, 30) for _ in range(50)))

    play(tmp_path, fine, scene)


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_exception_of_a_function_is_raised_at_its_await(tmp_path, error):
    async def scene(told):
        def function():
            raise error

        with pytest.raises(type(error)) as raised:
            await told.llm.run(function)
        assert raised.value is error

    play(tmp_path, fine, scene)


def test_function_that_raises_stop_iteration_does_not_wait_forever(tmp_path):
    async def scene(told):
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            await asyncio.wait_for(told.llm.run(next, iter(())), 10)
        assert isinstance(raised.value.__cause__, StopIteration)

    play(tmp_path, fine, scene)


def test_client_of_functions_sends_chats_and_http_requests(tmp_path):
    async def scene(told):
        def function(llm):
            client = llm.httpx_client(httpx)
            with client:
                said = client.post(CHAT, json=told.body()).json()
            return llm.model, llm.chat("Hi", temperature=0).text, said

        assert await told.llm.run(function, told.llm.sync) == ("m", "fine", ANSWER)
        assert [one.outcome for one in told.llm.conversation.attempts] == ["ok", "ok"]

    play(tmp_path, fine, scene)


def test_stream_is_read_piece_by_piece_and_an_abandoned_one_holds_no_seat(tmp_path):
    goes_on = threading.Event()

    async def answer(peer, _):
        await peer.send(EVENT_STREAM + event("a"))
        await until(goes_on.is_set)
        await peer.send(event("b") + LAST)

    async def scene(told):
        def function(llm, *, leaves):
            with llm.httpx_client(httpx).stream("POST", CHAT, json=told.body(stream=True)) as came:
                pieces = came.iter_raw()
                first = next(pieces)
                if leaves:
                    return first
                goes_on.set()
                return first + b"".join(pieces)

        assert await told.llm.run(function, told.llm.sync, leaves=True) == event("a")
        await told.free()
        whole = await told.llm.run(function, told.llm.sync, leaves=False)
        assert whole == event("a") + event("b") + LAST

    play(tmp_path, answer, scene)


@pytest.mark.parametrize("ends", ["the call", "the case"])
def test_function_of_a_cancelled_case_gets_an_error_at_its_next_request(tmp_path, ends):
    asks: threading.Event = threading.Event()
    told_of: list[str] = []

    async def scene(told):
        def function(llm):
            for _ in range(2):  # while a request is in flight, and at the next request
                try:
                    asks.set()
                    llm.chat("Hi")
                except Exception:  # noqa: BLE001 - like agents
                    told_of.append("an error like another")
                except asyncio.CancelledError:
                    told_of.append("cancelled")
            over.set()

        over = threading.Event()
        running = asyncio.ensure_future(told.llm.run(function, told.llm.sync))
        await told.llm.run(asks.wait, 30)
        await until(lambda: told.server.requests)
        if ends == "the call":
            running.cancel()
        else:
            await told.llm.close()
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError) == (ends == "the call")
        assert await told.llm.run(over.wait, 30)
        assert told_of == ["cancelled", "cancelled"]
        await told.free()
        assert told.outcomes == ["cancelled"]

    play(tmp_path, never, scene)


def test_client_of_functions_refuses_to_block_the_loop(tmp_path):
    async def scene(told):
        with pytest.raises(RuntimeError, match=r"use it only in a function that `await llm.run"):
            told.llm.sync.chat("Hi")

    play(tmp_path, fine, scene)


def test_own_thread_sends_requests_through_the_loop(tmp_path):
    """The documented way for callbacks that must be plain functions."""

    async def scene(told):
        loop = asyncio.get_running_loop()

        def function():
            return asyncio.run_coroutine_threadsafe(told.llm.chat("Hi"), loop).result().text

        assert await told.llm.run(function) == "fine"

    play(tmp_path, fine, scene)
