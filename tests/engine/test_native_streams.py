"""Streams that an SDK requests: readers, failures, and seats."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json

import pytest

from pytest_ultrapar.engine.sdk_clients import fault_behind
from pytest_ultrapar.errors import BadRequestError, InfraError, PromptRefused
from tests.engine.native_play import EVENT_STREAM, LAST, TOKEN, event, play, until
from tests.raw_server import json_response, response

WHOLE = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}


class Server:
    """Answer requests in turn with the given items; note which clients have left.

    The item `...` means that the server sends no more and waits until its client leaves. A number
    means seconds of silence: without a pause, pieces may arrive as one.
    """

    def __init__(self, *answers: tuple[object, ...]) -> None:
        self._answers = iter(answers)
        self.n_left = 0

    async def __call__(self, peer, _):
        for piece in next(self._answers):
            if piece is ...:
                await peer.gone()
                self.n_left += 1
            elif isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                await peer.send(piece)
        peer.close()


async def read(response) -> bytes:
    return b"".join([piece async for piece in response.aiter_raw()])


def test_stream_is_passed_on_as_the_server_sends_it(tmp_path):
    server = Server((EVENT_STREAM, event("Hel"), event("lo"), LAST))

    async def scene(told):
        async with told.stream() as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream"
            assert await read(answer) == event("Hel") + event("lo") + LAST
        assert told.outcomes == ["ok"]
        assert told.llm.conversation.messages[-1].content == "Hello"

    play(tmp_path, server, scene)


@pytest.mark.parametrize(
    "first",
    [
        (EVENT_STREAM,),
        (EVENT_STREAM, b'data: {"error": {"code": "503", "message": "full"}}\n\n'),
        (response(b"", status=b"503 Busy"),),
        (response(b"", b"retry-after: 0.05", status=b"429 Too Many"),),
    ],
    ids=["cut", "error", "503", "429"],
)
def test_failure_before_the_first_piece_is_retried(tmp_path, first):
    server = Server(first, (EVENT_STREAM, event("fine"), LAST))

    async def scene(told):
        async with told.stream() as answer:
            assert await read(answer) == event("fine") + LAST
        assert len(told.outcomes) == 2
        assert told.outcomes[1] == "ok"
        assert told.llm.conversation.n_turns == 1

    play(tmp_path, server, scene)


@pytest.mark.parametrize(
    "then", [b"", b'data: {"error": {"code": "503", "message": "full"}}\n\n'], ids=["cut", "error"]
)
def test_failure_after_the_first_piece_reaches_the_case(tmp_path, then):
    server = Server((EVENT_STREAM, event("Hel"), 0.1, then))

    async def scene(told):
        async with told.stream() as answer:
            with pytest.raises(InfraError):
                await read(answer)
        assert isinstance(told.llm.conversation.failure, InfraError)
        assert len(told.server.requests) == 1
        with pytest.raises(InfraError):
            await told.ask()
        assert len(told.server.requests) == 1

    play(tmp_path, server, scene)


def test_whole_answer_to_a_stream_request_is_passed_on_whole(tmp_path):
    server = Server((json_response(WHOLE),))

    async def scene(told):
        async with told.stream() as answer:
            assert answer.headers["content-type"] == "application/json"
            assert b"whole" in await read(answer)
        assert told.outcomes == ["ok"]

    play(tmp_path, server, scene)


def test_unread_answer_holds_no_seat(tmp_path):
    server = Server((EVENT_STREAM, *[event("x" * 1000)] * 100, LAST))

    async def scene(told):
        async with told.stream():
            await told.free()
            assert told.outcomes == ["ok"]

    play(tmp_path, server, scene)


def test_slow_reader_holds_no_seat_and_gets_the_whole_answer(tmp_path):
    server = Server((EVENT_STREAM, *[event("x" * 1000)] * 100, LAST))

    async def scene(told):
        async with told.stream() as answer:
            pieces = answer.aiter_raw()
            begin = await anext(pieces)
            await told.free()
            rest = b"".join([piece async for piece in pieces])
            assert begin + rest == event("x" * 1000) * 100 + LAST

    play(tmp_path, server, scene)


async def close_early(told):
    async with told.stream() as answer:
        await anext(answer.aiter_raw())


async def drop(told):
    request = told.client.build_request(
        "POST", "https://pool.invalid/v1/chat/completions", json=told.body(stream=True)
    )
    await told.client.send(request, stream=True)
    del request
    gc.collect()


async def cancel(told):
    async def reads():
        async with told.stream() as answer:
            await read(answer)

    task = asyncio.create_task(reads())
    await until(lambda: told.server.requests)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_before_the_answer(told):
    task = asyncio.create_task(told.ask())
    await until(lambda: told.server.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def end_of_episode(told):
    async with told.stream():
        await told.llm.close()


@pytest.mark.parametrize("leave", [close_early, drop, cancel, end_of_episode])
def test_abandoned_stream_returns_its_seat_immediately(tmp_path, leave):
    server = Server((EVENT_STREAM, event("Hel"), ...))

    async def scene(told):
        await leave(told)
        await told.free()
        assert told.outcomes == ["cancelled"]
        await until(lambda: server.n_left)

    play(tmp_path, server, scene)


@pytest.mark.parametrize("leave", [cancel, cancel_before_the_answer])
def test_request_that_is_cancelled_before_its_answer_returns_its_seat(tmp_path, leave):
    server = Server((...,))

    async def scene(told):
        await leave(told)
        await told.free()
        assert told.outcomes == ["cancelled"]

    play(tmp_path, server, scene)


def test_reader_that_leaves_after_the_last_piece_has_read_a_whole_answer(tmp_path):
    """OpenAI's SDK closes a stream at `[DONE]`, before the connection's own end."""
    chunked = EVENT_STREAM[:-2] + b"transfer-encoding: chunked\r\n\r\n"
    body = event("Hello") + LAST
    server = Server((chunked, b"%x\r\n%s\r\n" % (len(body), body), ...))

    async def scene(told):
        async with told.stream() as answer:
            await anext(answer.aiter_raw())
        await told.free()
        assert told.outcomes == ["ok"]

    play(tmp_path, server, scene)


CHAT = ("openai", "https://api.openai.com/v1/chat/completions", [{"choices": [{"delta": {}}]}])
RESPONSES = (
    "openai-responses",
    "https://api.openai.com/v1/responses",
    [{"type": "response.created", "response": {"id": "resp_1"}}],
)
MESSAGES = (
    "anthropic",
    "https://api.anthropic.com/v1/messages",
    [{"type": "message_start", "message": {"id": "msg_1"}}],
)
GEMINI = (
    "gemini",
    "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
    [{"candidates": [{"content": {"parts": [{"text": "Hel"}]}}]}],
)


@pytest.mark.parametrize(
    ("of", "error", "outcome"),
    [
        (CHAT, {"error": {"code": "content_filter", "message": "no"}}, "refused"),
        (CHAT, {"error": {"code": "429", "message": "no"}}, "rate"),
        (CHAT, {"error": {"type": "invalid_request_error", "message": "no"}}, "bad_request"),
        (RESPONSES, {"type": "error", "code": "rate_limit_exceeded", "message": "no"}, "rate"),
        (
            RESPONSES,
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_error", "message": ""}},
            },
            "overload",
        ),
        (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}, "rate"),
        (MESSAGES, {"type": "error", "error": {"type": "invalid_request_error"}}, "bad_request"),
        (CHAT, {"choices": [{"delta": {"content": "no"}, "finish_reason": "error"}]}, "overload"),
        (CHAT, {"choices": [{"error": {"code": 429, "message": "no"}}]}, "rate"),
        (RESPONSES, {"type": "response.failed", "response": {"status": "failed"}}, "overload"),
        (GEMINI, {"error": {"code": 503, "message": "no"}}, "overload"),
        (GEMINI, {"error": {"code": 400, "message": "no"}}, "bad_request"),
    ],
)
@pytest.mark.parametrize("leaves", [False, True], ids=["reads on", "leaves"])
def test_error_in_a_stream_is_the_attempts_outcome(tmp_path, of, error, outcome, leaves):
    api, url, begin = of
    pieces = [b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in [*begin, error]]
    server = Server((EVENT_STREAM, pieces[0], 0.05, pieces[1], *([...] if leaves else [])))

    async def scene(told):
        body = told.body(stream=True, contents=[], input="Hi")
        with contextlib.suppress(InfraError):
            async with told.client.stream("POST", url, json=body) as answer:
                async for piece in answer.aiter_raw():
                    if leaves and b"no" in piece:
                        break
        await told.free()
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.outcome, attempt.status, attempt.maybe_billed) == (outcome, 200, True)

    play(tmp_path, server, scene, api=api, path="/v1" if api == "openai" else "")


def by_response(response):
    """Raise what Anthropic's SDK raises when it reads an error event."""
    error = RuntimeError("the SDK's own words")
    error.response = response
    return error


def by_request(response):
    """Raise what OpenAI's SDK raises."""
    error = RuntimeError("the SDK's own words")
    error.request = response.request
    return error


@pytest.mark.parametrize("raised", [by_response, by_request])
@pytest.mark.parametrize(
    ("code", "fault"), [("content_filter", PromptRefused), ("400", BadRequestError)]
)
def test_provider_error_in_a_stream_is_the_cause_of_the_sdks_exception(
    tmp_path, raised, code, fault
):
    said = json.dumps({"error": {"code": code, "message": f"no {TOKEN}"}}).encode()
    server = Server((EVENT_STREAM, event("Hel"), 0.05, b"data: " + said + b"\n\n", ...))

    async def scene(told):
        async with told.stream() as answer:
            assert fault_behind(raised(answer)) is None
            async for piece in answer.aiter_raw():
                if b"error" in piece:
                    break
            found = fault_behind(raised(answer))
        assert isinstance(found, fault)
        assert TOKEN not in str(found)

    play(tmp_path, server, scene)


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("asked", [{}, {"stream_options": {"include_usage": False, "x": 1}}])
def test_usage_of_a_stream_is_requested_and_hidden_from_clients_that_did_not_request_it(
    tmp_path, asked
):
    first, last = event("Hello"), event(finish_reason="stop")
    empty = b'data: {"choices": [], "prompt_filter_results": [], "usage": null}\n\n'
    # In one piece, and the last two events without the empty line after them.
    server = Server((EVENT_STREAM, empty + first + last + USAGE + DONE[:-1]))

    async def scene(told):
        async with told.stream(**asked) as answer:
            assert await read(answer) == empty + first + last + DONE[:-1]
        (attempt,) = told.llm.conversation.attempts
        assert (attempt.tokens_in, attempt.tokens_out) == (5, 2)
        sent = json.loads(told.server.requests[0].body)["stream_options"]
        assert sent == {**asked.get("stream_options", {}), "include_usage": True}

    play(tmp_path, server, scene)


def test_usage_of_a_stream_reaches_clients_that_request_it(tmp_path):
    whole = event("Hello") + event(finish_reason="stop") + USAGE + DONE
    server = Server((EVENT_STREAM, whole))

    async def scene(told):
        async with told.stream(stream_options={"include_usage": True}) as answer:
            assert await read(answer) == whole

    play(tmp_path, server, scene)


def test_server_without_the_option_is_not_asked_for_the_usage_of_a_stream(tmp_path):
    server = Server((EVENT_STREAM, event("Hello"), LAST))

    async def scene(told):
        async with told.stream() as answer:
            await read(answer)
        assert "stream_options" not in json.loads(told.server.requests[0].body)

    play(tmp_path, server, scene, provider="parameters = { stream_options = false }")
