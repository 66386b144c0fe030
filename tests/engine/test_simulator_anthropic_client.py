"""The official `anthropic` client against a real simulator."""

from __future__ import annotations

from importlib import import_module

import httpx
import pytest

from pytest_ultrapar.pool.model import Limit
from tests.simulated_pool import (
    ARGUMENTS,
    MESSAGES,
    PARAMETERS,
    PROVIDER,
    faults_of,
    running,
    simulated_pool,
)

# Importing the client takes seconds.
pytestmark = pytest.mark.slow

ASKED = {"model": "claude-x", "max_tokens": 1000, "messages": MESSAGES}
TOOL = {"name": "look_up", "input_schema": PARAMETERS}


@pytest.fixture(scope="module")
def anthropic():
    """The client. Its import takes seconds, which would delay every worker's collection."""
    return import_module("anthropic")


@pytest.fixture(scope="module")
def client_of(anthropic):
    """A function that makes a client of a server."""

    def made(server, **options):
        url = server.base_url(PROVIDER).removesuffix("/v1")
        known = {"api_key": "sim-lab-key0", "max_retries": 0}
        return anthropic.Anthropic(base_url=url, **known | options)

    return made


@pytest.fixture(scope="module")
def client(tmp_path_factory, client_of):
    pool = simulated_pool(models={"m": ("claude-x", "i1")})
    with (
        running(pool, tmp_path_factory.mktemp("anthropic")) as server,
        client_of(server) as made,
    ):
        yield made


def test_client_calls_a_tool_and_returns_its_result(client):
    asked = {**ASKED, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "look_up"}}
    message = client.messages.create(**asked)
    (call,) = message.content
    assert (call.type, call.name, call.input) == ("tool_use", "look_up", ARGUMENTS)
    assert message.stop_reason == "tool_use"
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_message().content[0].input == ARGUMENTS
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "42"}
    answered = client.messages.create(
        model="claude-x",
        max_tokens=100,
        tools=[TOOL],
        messages=[
            *MESSAGES,
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
        ],
    )
    assert answered.content[0].text == "echo: so?"


def test_client_raises_the_exception_for_each_refusal(client, anthropic):
    with pytest.raises(anthropic.AuthenticationError) as refusal:
        client.copy(api_key="sk-wrong").messages.create(**ASKED)
    assert refusal.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as refusal:
        client.messages.create(**{**ASKED, "model": "none"})
    assert refusal.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(**{**ASKED, "max_tokens": 0})


def test_version_of_the_api_is_required(client):
    url = f"{client.base_url}v1/messages"
    response = httpx.post(url, headers={"x-api-key": "sim-lab-key0"}, json=ASKED, timeout=60.0)
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert "anthropic-version" in response.json()["error"]["message"]


def test_faults_and_headers_have_the_apis_shape(tmp_path, client_of, anthropic):
    pool = simulated_pool(models={"m": ("claude-x",)}, per_key=Limit("", "key", rpm=60))
    text = """
    [[fault]]
    kind = "error"
    error = "overloaded"
    for_requests = 1
    [[fault]]
    kind = "error"
    error = "rate_limit_exceeded"
    after_requests = 1
    for_requests = 1
    """
    with (
        running(pool, tmp_path, faults=faults_of(pool, tmp_path, text)) as server,
        client_of(server) as client,
    ):
        with pytest.raises(anthropic.APIStatusError) as refusal:
            client.messages.create(**ASKED)
        assert refusal.value.status_code == 529
        assert refusal.value.body["error"]["type"] == "overloaded_error"
        with pytest.raises(anthropic.RateLimitError) as refusal:
            client.messages.create(**ASKED)
        assert refusal.value.body["error"]["type"] == "rate_limit_error"
        assert refusal.value.response.headers["retry-after"] == "1"
