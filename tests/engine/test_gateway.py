"""The gateway of an episode: which clients it accepts, which wait, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from pytest_ultrapar.engine import gateway as gateways
from pytest_ultrapar.engine import sdk_request
from pytest_ultrapar.engine.gateway import Gateway
from tests.engine import native_play
from tests.engine.native_play import EVENT_STREAM, LAST, TOKEN, event, until
from tests.engine.test_native_requests import CHATTED, saying
from tests.engine.test_native_streams import Server, read
from tests.raw_server import json_response, response

OPEN: list[httpx.AsyncClient] = []
"""The clients that the current scene has not closed yet."""


def play(tmp_path, answer, scene, **more):
    """Run `native_play.play`, with all clients closed at the end of the scene."""

    async def whole(told):
        try:
            await scene(told)
        finally:
            while OPEN:
                await OPEN.pop().aclose()

    return native_play.play(tmp_path, answer, whole, **more)


class Outside:
    """A client of another process, as the gateway sees it."""

    def __init__(self, told, *, token=None):
        self.url = f"{told.llm.base_url}/chat/completions"
        self.headers = {"authorization": f"Bearer {token or told.llm.api_key}"}
        self.body = told.body
        self.client = httpx.AsyncClient(timeout=30, trust_env=False)
        OPEN.append(self.client)

    async def ask(self, **fields):
        return await self.client.post(self.url, headers=self.headers, json=self.body(**fields))

    async def leave(self, user):
        """Send a request, and leave before its answer."""
        body, timeout = self.body(user=user), httpx.Timeout(30, read=0.2)
        with pytest.raises(httpx.ReadTimeout):
            await self.client.post(self.url, headers=self.headers, json=body, timeout=timeout)

    def stream(self):
        body = self.body(stream=True)
        return self.client.stream("POST", self.url, headers=self.headers, json=body)


def said(answer: httpx.Response) -> str:
    return answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/chat/completions", lambda token: {"authorization": f"Bearer {token}"}),
        ("/v1/chat/completions", lambda token: {"authorization": f"Bearer {token}"}),
        ("/openai/deployments/m/chat/completions?api-version=1", lambda token: {"api-key": token}),
    ],
)
def test_addresses_as_clients_write_them_are_understood(tmp_path, path, headers):
    async def scene(told):
        base = told.llm.base_url.removesuffix("/v1" if path.startswith("/openai") else "")
        answer = await Outside(told).client.post(
            base + path, headers=headers(told.llm.api_key), json=told.body()
        )
        assert answer.status_code == 200

    play(tmp_path, saying(json_response(CHATTED)), scene)


def test_token_is_invalid_elsewhere_and_after_its_case(tmp_path):
    async def scene(told):
        client = Outside(told)
        stranger = await Outside(told, token="sk-mine").ask()
        assert (stranger.status_code, stranger.headers["x-should-retry"]) == (401, "false")
        assert "has no key that this gateway knows" in said(stranger)
        await told.llm.close()
        late = await client.ask()
        assert late.status_code == 401
        assert "llm.api_key, which is valid until the case ends" in said(late)
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "/v1/chat/completion",
            "a request asks for POST /v1/chat/completion, which the pool does not serve for the "
            "model 'm'; it serves POST /chat/completions",
        ),
        ("/v1/files", "the model 'm'; it serves POST /chat/completions"),
        ("/v1/chat/completions", "a request asks for the model 'other'"),
    ],
)
def test_a_forbidden_request_gets_one_sentence_and_the_episode_decides(tmp_path, path, says):
    async def scene(told):
        client = Outside(told)
        client.url = told.llm.base_url.removesuffix("/v1") + path
        answer = await client.ask(model="other")
        assert answer.status_code == 400
        assert says in said(answer)
        assert "client made with llm" not in said(answer)
        assert "key0" not in said(answer)
        assert told.llm.conversation.failure is None
        assert says in str(told.llm.refused)
        assert told.server.requests == []

    play(tmp_path, saying(), scene)


def test_large_body_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(sdk_request, "LARGEST_REQUEST_BYTES", 1000)

    async def scene(told):
        client = Outside(told)

        async def pieces():
            for _ in range(20):
                yield b" " * 100

        for content in (b" " * 100_000, pieces()):
            answer = await client.client.post(client.url, headers=client.headers, content=content)
            assert answer.status_code == 413
            assert said(answer) == "a request is larger than the maximum of 1,000 bytes"
        assert (await client.ask()).status_code == 200

    play(tmp_path, saying(json_response(CHATTED)), scene)


def test_permanent_failure_is_final_and_fails_the_case(tmp_path):
    async def scene(told):
        client = Outside(told)
        for _ in range(2):
            answer = await client.ask()
            assert answer.status_code == 502
            assert answer.headers["x-should-retry"] == "false"
        assert told.llm.conversation.failure.kind == "no_lane"
        # And a probe, since this is the first answer of the lane.
        assert len(told.server.requests) == 2
        assert TOKEN not in answer.text

    refused = response(b"no", status=b"401 Unauthorized")
    play(tmp_path, saying(refused, refused), scene)


def test_provider_error_about_the_prompt_is_passed_on_unchanged(tmp_path):
    error = {"error": {"message": "too long", "code": "context_length_exceeded"}}

    async def scene(told):
        answer = await Outside(told).ask()
        assert (answer.status_code, answer.json()) == (400, error)
        assert answer.headers["x-should-retry"] == "false"
        assert told.llm.refused.kind == "context_length"

    play(tmp_path, saying(json_response(error, status=400)), scene)


async def said_until_it_breaks(came):
    """Read a stream until it is cut off, as it must be."""
    said = b""
    with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - raises after some output
        while True:
            said += await anext(came)
    return said


def test_stream_is_passed_on_and_a_broken_one_is_cut_off(tmp_path):
    server = Server((EVENT_STREAM, event("Hel"), event("lo"), LAST), (EVENT_STREAM, event("Hel")))

    async def scene(told):
        client = Outside(told)
        async with client.stream() as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            assert await read(answer) == event("Hel") + event("lo") + LAST
        async with client.stream() as answer:
            said = await said_until_it_breaks(answer.aiter_raw())
        *_, last = said.strip().split(b"\n\n")
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert error["message"] == "the stream ended before it was complete"

    play(tmp_path, server, scene)


def test_stream_that_the_gateway_ends_closes_with_an_error_event(tmp_path):
    server = Server((EVENT_STREAM, event("Hel"), ...))

    async def scene(told):
        async with Outside(told).stream() as answer:
            came = answer.aiter_raw()
            assert await anext(came) == event("Hel")
            await told.llm.close()
            said = await said_until_it_breaks(came)
        error = json.loads(said.removeprefix(b"data: "))["error"]
        assert error["message"] == "the gateway, or the case that sent the request, has ended"

    play(tmp_path, server, scene)


def test_key_split_over_events_is_masked_and_no_event_waits_for_the_next(tmp_path):
    first, echo = event("Hel"), event(f"your key is {TOKEN}")
    pieces = [echo[at : at + 7] for at in range(0, len(echo), 7)]
    may = asyncio.Event()

    async def server(peer, _):
        await peer.send(EVENT_STREAM, first)
        while not may.is_set():  # noqa: ASYNC110 - another loop changes it
            await asyncio.sleep(0.01)
        for piece in [*pieces, LAST]:
            await peer.send(piece)
            await asyncio.sleep(0.001)  # otherwise they may come as one
        peer.close()

    async def scene(told):
        for stream in (Outside(told).stream, told.stream):
            may.clear()
            async with stream() as answer:
                came = answer.aiter_raw()
                assert await anext(came) == first
                may.set()
                assert b"".join([piece async for piece in came]) == event("your key is ***") + LAST

    play(tmp_path, server, scene)


async def close_early(client, _):
    async with client.stream() as answer:
        await anext(answer.aiter_raw())
        await client.client.aclose()


async def read_nothing(client, told):
    async with client.stream():
        await told.llm.close()


async def episode_ends(client, told):
    async with client.stream() as answer:
        await told.llm.close()
        with pytest.raises(httpx.RemoteProtocolError):
            await read(answer)


@pytest.mark.parametrize("leave", [close_early, read_nothing, episode_ends])
def test_abandoned_stream_holds_no_seat(tmp_path, leave):
    server = Server((EVENT_STREAM, event("Hel"), ...))

    async def scene(told):
        await leave(Outside(told), told)
        await told.free()
        assert told.outcomes == ["cancelled"]
        await until(lambda: server.n_left)

    play(tmp_path, server, scene)


def test_client_that_leaves_ends_its_request_and_frees_its_seat(tmp_path):
    async def scene(told):
        task = asyncio.create_task(Outside(told).ask())
        await until(lambda: told.server.requests)
        task.cancel()
        await asyncio.wait({task})
        await told.free()
        assert told.outcomes == ["cancelled"]

    play(tmp_path, Server((...,)), scene)


def hold():
    """A server whose first answer waits, and the function that releases the answer."""
    may = asyncio.Event()
    n = 0

    async def answer(peer, _):
        nonlocal n
        n += 1
        if n == 1:
            while not may.is_set():  # noqa: ASYNC110 - another loop changes it
                await asyncio.sleep(0.01)
        await peer.send(json_response({**CHATTED, "id": f"c-{n}"}))

    return answer, may


def test_client_that_waits_too_long_is_sent_away_and_keeps_its_place(tmp_path):
    """One seat: the second client waits, is sent away and returns, and nothing is sent twice."""
    answer, may = hold()

    async def scene(told):
        client = Outside(told)
        first = asyncio.create_task(client.ask(user="first"))
        await until(lambda: told.server.requests)
        away = await client.ask(user="second")
        assert away.status_code == 429
        assert away.headers["retry-after"] == "1"
        assert "send it again unchanged, with the same key, to keep its place" in said(away)
        # Another request of the same case has another place.
        third = asyncio.create_task(client.ask(user="third"))
        may.set()
        assert (await first).json()["id"] == "c-1"
        await until(lambda: len(told.server.requests) > 1)
        second = await client.ask(user="second")
        assert second.json()["id"] == "c-2"
        while (third_answer := await third).status_code == 429:
            third = asyncio.create_task(client.ask(user="third"))
        assert third_answer.json()["id"] == "c-3"
        users = [json.loads(request.body)["user"] for request in told.server.requests]
        assert users == ["first", "second", "third"]

    play(tmp_path, answer, scene, gateway=Gateway(max_wait_s=0.1))


@pytest.mark.parametrize(
    "headers",
    [
        {"x-stainless-read-timeout": "0.2"},
        {"X-Stainless-Timeout": "0.2", "user-agent": "OpenAI/JS"},
    ],
)
def test_waiting_client_is_held_until_just_before_its_timeout(tmp_path, headers):
    answer, may = hold()

    async def scene(told):
        client = Outside(told)
        first = asyncio.create_task(client.ask(user="first"))
        await until(lambda: told.server.requests)
        client.headers |= headers
        away = await client.ask(user="second")
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        assert "send it again unchanged, with the same key, to keep its place" in said(away)
        may.set()
        assert (await first).status_code == 200
        await until(lambda: len(told.server.requests) > 1)
        assert (await client.ask(user="second")).json()["id"] == "c-2"

    play(tmp_path, answer, scene)


def test_drained_gateway_finishes_sent_requests_and_refuses_waiting_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(gateways, "_COMMENT_S", 0.05)
    answer, may = hold()

    async def last_of(client):
        async with client.stream() as answer:
            return json.loads((await read(answer)).strip().split(b"\n\ndata: ")[-1])

    async def scene(told):
        client = Outside(told)
        gateway = told.llm._sender.parts.gateway
        first = asyncio.create_task(client.ask(user="first"))
        await until(lambda: told.server.requests)
        waits = asyncio.create_task(client.ask(user="second"))
        stream = asyncio.create_task(last_of(client))
        await until(lambda: gateway.n_served == 3)
        await asyncio.sleep(0.1)
        drained = asyncio.create_task(gateway.drain())
        away = await waits
        assert (away.status_code, away.headers["retry-after"]) == (503, "5")
        assert said(away) == (await stream)["error"]["message"] == "the gateway is shutting down"
        late = await client.ask(user="third")
        assert (late.status_code, said(late)) == (503, "the gateway is shutting down")
        assert not drained.done()
        may.set()
        assert (await first).json()["id"] == "c-1"
        await drained
        assert len(told.server.requests) == 1

    play(tmp_path, answer, scene)


def test_request_of_a_client_that_leaves_the_queue_is_not_sent_and_may_come_again(tmp_path):
    answer, may = hold()

    async def scene(told):
        client = Outside(told)
        first = asyncio.create_task(client.ask(user="first"))
        await until(lambda: told.server.requests)
        for user in ("gone", "back"):
            await client.leave(user)
        back = asyncio.create_task(client.ask(user="back"))
        await asyncio.sleep(0.1)
        may.set()
        assert (await first).status_code == (await back).status_code == 200
        await told.free()
        users = [json.loads(request.body)["user"] for request in told.server.requests]
        assert users == ["first", "back"]

    play(tmp_path, answer, scene)


def test_place_in_the_queue_belongs_to_one_request_in_one_form(tmp_path):
    answer, may = hold()

    async def scene(told):
        client = Outside(told)
        first = asyncio.create_task(client.ask(user="first"))
        await until(lambda: told.server.requests)
        await client.leave("other")
        client.headers["anthropic-beta"] = "another"
        other = asyncio.create_task(client.ask(user="other"))
        await asyncio.sleep(0.1)
        may.set()
        assert (await first).status_code == (await other).status_code == 200
        (_, sent) = told.server.requests
        assert sent.headers["anthropic-beta"] == "another"

    play(tmp_path, answer, scene)


def test_stream_that_waits_gets_comments(tmp_path, monkeypatch):
    monkeypatch.setattr(gateways, "_COMMENT_S", 0.05)
    server = Server((EVENT_STREAM, 0.5, event("Hello"), LAST))

    async def scene(told):
        async with Outside(told).stream() as answer:
            whole = await read(answer)
        comments, _, events = whole.partition(b"data: ")
        assert set(comments.split(b"\n\n")) == {b": waiting for the pool's limits", b""}
        assert b"data: " + events == event("Hello") + LAST

    play(tmp_path, server, scene)


def test_stream_that_fails_after_comments_ends_with_an_error_event(tmp_path, monkeypatch):
    monkeypatch.setattr(gateways, "_COMMENT_S", 0.05)
    server = Server((0.3, response(b"no", status=b"401 Unauthorized")))

    async def scene(told):
        async with Outside(told).stream() as answer:
            *_, last = (await read(answer)).strip().split(b"\n\n")
        assert "error" in json.loads(last.removeprefix(b"data: "))

    play(tmp_path, server, scene)


def test_process_that_needs_no_address_starts_no_server(tmp_path):
    async def scene(told):
        await told.ask()
        assert told.llm.api_key.startswith("ultrapar-")
        await told.ask()

    gateway = Gateway()
    play(tmp_path, saying(*[json_response(CHATTED)] * 2), scene, gateway=gateway)
    assert gateway._starting is None


def test_clients_in_threads_of_the_episode_do_not_keep_the_server_from_starting(tmp_path):
    async def scene(told):
        # As few threads as possible, all waiting for the server, which has not started yet.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        client = Outside(told)
        post = partial(httpx.post, timeout=30, trust_env=False)
        answer = await asyncio.to_thread(post, client.url, headers=client.headers, json=told.body())
        assert answer.status_code == 200

    play(tmp_path, saying(json_response(CHATTED)), scene)


def test_address_can_only_be_read_in_the_episode_itself(tmp_path):
    async def scene(told):
        with pytest.raises(RuntimeError, match="read it in the episode itself"):
            await asyncio.to_thread(lambda: told.llm.base_url)

    play(tmp_path, saying(), scene)


def test_body_that_cannot_be_read_is_refused_in_one_sentence(tmp_path):
    async def scene(told):
        client = Outside(told)
        headers = {**client.headers, "content-encoding": "gzip"}
        answer = await client.client.post(client.url, headers=headers, content=b"no gzip")
        assert answer.status_code == 400
        assert answer.headers["x-should-retry"] == "false"
        assert "the body of a request cannot be read" in said(answer)
        assert (await client.ask()).status_code == 200

    play(tmp_path, saying(json_response(CHATTED)), scene)


def test_gateway_that_cannot_serve_refuses_clients_and_can_be_closed(tmp_path, monkeypatch):
    async def scene(told):
        async def broken(*_, **__):
            raise OSError

        monkeypatch.setattr(asyncio.get_running_loop(), "create_server", broken, raising=False)
        client = Outside(told)
        with pytest.raises(httpx.TransportError):
            await client.ask()
        await told.llm._sender.parts.gateway.close()

    play(tmp_path, saying(), scene)


def test_clients_with_tokens_are_served_in_the_order_of_arrival(tmp_path):
    answer, may = hold()

    async def scene(told):
        first = Outside(told)
        second = Outside(told, token=guest(told, "another").token)
        sessions = told.llm._sender.parts.gateway._sessions.values()
        asked = [asyncio.create_task(first.ask(user="0"))]
        await until(lambda: told.server.requests)
        for n in range(1, 9):
            client = first if n % 4 == 0 else second
            asked.append(asyncio.create_task(client.ask(user=str(n))))
            await until(lambda n=n: sum(len(session.tasks) for session in sessions) > n)
        may.set()
        assert {one.status_code for one in await asyncio.gather(*asked)} == {200}
        users = [json.loads(request.body)["user"] for request in told.server.requests]
        assert users == [str(n) for n in range(9)]

    play(tmp_path, answer, scene)


def guest(told, name: str):
    """A gateway entry of another client, whose requests belong to the same case."""
    return told.llm._sender.parts.gateway.admit(told.llm.native(), name)


ANTHROPIC = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "fine"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 6},
}
GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"}
    ],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 6},
}
STREAMED = {
    "anthropic": b"".join(
        b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode())
        for one in (
            {"type": "message_start", "message": {**ANTHROPIC, "content": []}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "fine"},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 6},
            },
            {"type": "message_stop"},
        )
    ),
    "gemini": b"data: " + json.dumps(GEMINI).encode() + b"\r\n\r\n",
}
PLACES = {
    "anthropic": ("/v1/messages", "/v1/messages", "x-api-key"),
    "gemini": (
        "/v1beta/models/m:generateContent",
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        "x-goog-api-key",
    ),
}
FAULTS = {
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
    "gemini": {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}},
}


@pytest.mark.parametrize("api", ["anthropic", "gemini"])
def test_answers_streams_and_errors_of_other_apis_are_passed_on(tmp_path, api):
    whole, streamed = ANTHROPIC if api == "anthropic" else GEMINI, STREAMED[api]
    plain, stream, header = PLACES[api]

    async def scene(told):
        # As their SDKs write the address: after the part that ends in a version.
        base, headers = told.llm.base_url, {header: told.llm.api_key}
        client = Outside(told).client
        body = (
            told.body(max_tokens=9)
            if api == "anthropic"
            else {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        )
        answer = await client.post(base + plain, headers=headers, json=body)
        assert (answer.status_code, answer.json()) == (200, whole)
        asked = {**body, "stream": True} if api == "anthropic" else body
        answer = await client.post(base + stream, headers=headers, json=asked)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.content == streamed
        answer = await client.post(base + plain, headers=headers, json=body)
        assert (answer.status_code, answer.json()) == (400, FAULTS[api])
        assert answer.headers["x-should-retry"] == "false"
        # The gateway's own errors have the shape of the API that was used.
        answer = await client.post(base + plain, headers={header: "no token"}, json=body)
        assert answer.status_code == 401
        kind = "type" if api == "anthropic" else "status"
        word = "authentication_error" if api == "anthropic" else "UNAUTHENTICATED"
        assert answer.json()["error"][kind] == word
        assert told.outcomes == ["ok", "ok", "bad_request"]
        assert [one.tokens_out for one in told.llm.conversation.attempts] == [6, 6, None]
        assert all(one.headers[header] == TOKEN for one in told.server.requests)
        # The lane's name for the model, if the API has one.
        asked = told.server.requests[1]
        assert asked.target == stream.replace("/m:", "/theirs:")
        assert asked.json().get("model") == ("theirs" if api == "anthropic" else None)
        assert told.llm.conversation.messages[1].content == "fine"

    answers = (
        json_response(whole),
        response(streamed, b"content-type: text/event-stream"),
        json_response(FAULTS[api], status=400),
    )
    model = 'instances = ["theirs"]'
    play(tmp_path, saying(*answers), scene, api=api, model=model, path="")
