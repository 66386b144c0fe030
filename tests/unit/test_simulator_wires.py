"""The plugin's client reads the answers of the simulated provider, for every API."""

from __future__ import annotations

import pytest

from pytest_ultrapar.apis.registry import api_named
from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.simulator.answer import Pieces, Whole, broken_off
from pytest_ultrapar.simulator.app import compose
from pytest_ultrapar.simulator.faults.kinds import Malformed
from pytest_ultrapar.simulator.served_pool import served_providers
from pytest_ultrapar.simulator.wire.resource import resource_named
from tests.simulated_pool import simulated_pool

POOL = simulated_pool(latency=Latency("log-normal", 1.0, 0.5))
LANE = served_providers(POOL)["lab"].lanes["key0", "m"]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "so?"}]
APIS = {
    "openai": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
    "gemini": "generate_content",
}


@pytest.fixture(params=APIS)
def wire(request):
    """The client's side of an API and the server's."""
    return api_named(request.param), resource_named(APIS[request.param])


def composed(wire, parameters=None, *, streamed=False, effect=None):
    """The composed answer to a request of the plugin's client."""
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
    request = resource.read(body, name="m", scope=scope)
    return compose(LANE, request, resource, effect)


def answered(wire, parameters=None, **options):
    """The HTTP answer to a request of the plugin's client."""
    return composed(wire, parameters, **options).answer


def read(wire, answer):
    """The reply or failure that the plugin's client reads from an answer."""
    api, _ = wire
    if isinstance(answer, Whole):
        return api.reply(answer.body, "p/i/k", 0.5)
    stream = api.stream()
    for _, piece in answer.pieces:
        stream.feed(piece, 1.0)
    stream.end(1.0)
    return stream.reply("p/i/k", 0.5)


def test_conversation_takes_the_same_time_and_tokens_on_every_api():
    wires = [(api_named(name), resource_named(resource)) for name, resource in APIS.items()]
    found = [composed(wire, streamed=streamed) for wire in wires for streamed in (False, True)]
    assert len({(one.latency_s, one.usage.n_in, one.usage.n_out) for one in found}) == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("body", [None, "", "[]", "<html>", '{"a": 1}'])
def test_malformed_answer_is_a_failure_for_the_client(wire, body, streamed):
    answer = answered(wire, streamed=streamed, effect=Malformed(body))
    assert read(wire, answer).outcome == "malformed"


def test_aborted_stream_is_not_a_reply(wire):
    answer = answered(wire, streamed=True)
    assert isinstance(answer, Pieces)
    assert not isinstance(read(wire, broken_off(answer, "close")), Reply)
