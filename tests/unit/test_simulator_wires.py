"""What the simulated provider writes is what our own client of the same API reads."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.simulator.answer import Pieces, Whole, broken_off
from pytest_ultrapar.simulator.app import ServedRequest
from pytest_ultrapar.simulator.faults.kinds import (
    KNOWN_ERRORS,
    Error,
    Finish,
    Malformed,
    MalformedForm,
)
from pytest_ultrapar.simulator.served import served_providers
from pytest_ultrapar.simulator.wire.resource import new_resource
from tests.simulated_pool import simulated_pool

POOL = simulated_pool(latency=Latency("log-normal", 1.0, 0.5))
LANE = served_providers(POOL)["lab"].lanes["key0", "m"]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "so?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
        },
    },
}
APIS = {
    "openai": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
    "gemini": "generate_content",
}


@pytest.fixture(params=APIS)
def wire(request):
    """The client's side of an API and the server's."""
    return api_named(request.param), new_resource(APIS[request.param])


def composed(wire, parameters=None, *, streamed=False, effect=None):
    """What our client's request gets."""
    api, resource = wire
    if parameters is None:
        parameters = {"max_tokens": 100}
    if streamed:
        parameters |= api.streamed
    scope = {
        "path": ":streamGenerateContent" if streamed else ":generateContent",
        "query_string": b"alt=sse",
        "headers": [(name.encode(), value.encode()) for name, value in api.headers("t").items()],
    }
    body = api.request("m", MESSAGES, parameters)
    request = resource.read(body, name="m", key="key0", scope=scope)
    return ServedRequest(LANE, request, resource).compose(effect and effect.on(resource))


def answered(wire, parameters=None, **options):
    """The answer to our client's request."""
    return composed(wire, parameters, **options).answer


def read(wire, answer):
    """What our client makes of an answer."""
    api, _ = wire
    if isinstance(answer, Whole):
        return api.reply(answer.body, "p/i/k", 0.5)
    stream = api.stream()
    for _, piece in answer.pieces:
        stream.feed(piece, 1.0)
    stream.end(1.0)
    return stream.reply("p/i/k", 0.5)


@pytest.mark.parametrize("streamed", [False, True])
def test_answer_is_read(wire, streamed):
    reply = read(wire, answered(wire, streamed=streamed))
    assert isinstance(reply, Reply)
    assert (reply.text, reply.finish_reason) == ("echo: so?", "stop")
    assert (reply.tokens_in, reply.tokens_out) == (3, 3)
    assert reply.cached_tokens in {0, None}


def test_conversation_takes_the_same_time_and_tokens_on_every_api():
    wires = [(api_named(name), new_resource(resource)) for name, resource in APIS.items()]
    found = [composed(wire, streamed=streamed) for wire in wires for streamed in (False, True)]
    assert len({(one.latency_s, one.n_tokens) for one in found}) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_call_of_a_tool_is_read(wire, streamed):
    parameters = {"max_tokens": 100, "tools": [TOOL], "tool_choice": "required"}
    reply = read(wire, answered(wire, parameters, streamed=streamed))
    (call,) = reply.tool_calls
    assert (call.name, msgspec.json.decode(call.arguments)) == ("f", {"a": "so?"})
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_early_end_is_read(wire, reason, streamed):
    reply = read(wire, answered(wire, streamed=streamed, effect=Finish(reason)))
    if reason == "length":
        assert (reply.finish_reason, reply.text) == ("length", "echo")
    else:
        assert reply.outcome == "refused"


@pytest.mark.parametrize("form", sorted(set(get_args(MalformedForm)) - {"empty-choices"}))
def test_malformed_answer_is_none_to_the_client(wire, form):
    assert read(wire, answered(wire, effect=Malformed(form))).outcome == "malformed"


def test_stream_that_is_broken_off_is_no_answer(wire):
    answer = answered(wire, streamed=True)
    assert isinstance(answer, Pieces)
    assert not isinstance(read(wire, broken_off(answer, "close")), Reply)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("rate_limit_exceeded", "rate"),
        ("invalid_api_key", "auth"),
        ("permission_denied", "forbidden"),
        ("model_not_found", "not_found"),
        ("server_error", "overload"),
        ("unsupported_parameter", "bad_request"),
    ],
)
def test_known_error_means_the_same_to_every_client(wire, name, outcome):
    api, resource = wire
    answer = Error(None, None, None, said=KNOWN_ERRORS[name]).on(resource).answer()
    headers = {key.decode(): value.decode() for key, value in answer.headers}
    failure = api.failure(answer.status, answer.body, headers, epoch_s=0.0)
    assert failure.outcome == outcome
