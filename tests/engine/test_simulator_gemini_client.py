"""The official `google-genai` client against a real simulator."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.simulated_pool import ARGUMENTS, PROVIDER, faults_of, running, simulated_pool

# Importing the client takes seconds.
pytestmark = pytest.mark.slow

ASKED = {"model": "gemini-x", "contents": "what is the answer"}
DECLARED = {
    "name": "look_up",
    "parameters": {
        "type": "OBJECT",
        "properties": {"query": {"type": "STRING"}, "n": {"type": "INTEGER"}},
        "required": ["query", "n"],
    },
}


@pytest.fixture(scope="module")
def genai():
    """The client. Its import takes seconds, which would delay every worker's collection."""
    return import_module("google.genai")


@pytest.fixture(scope="module")
def client_of(genai):
    """A function that makes a client of a server."""

    def made(server, key="sim-lab-key0"):
        url = server.base_url(PROVIDER).removesuffix("/v1")
        return genai.Client(api_key=key, http_options={"base_url": url})

    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pool = simulated_pool(models={"m": ("gemini-x", "i1")})
    with running(pool, tmp_path_factory.mktemp("gemini")) as process:
        yield process


@pytest.fixture(scope="module")
def client(server, client_of):
    with client_of(server) as made:
        yield made


def test_client_calls_a_function_and_returns_its_result(client):
    config = {
        "tools": [{"function_declarations": [DECLARED]}],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
    }
    response = client.models.generate_content(config=config, **ASKED)
    (call,) = response.function_calls
    assert (call.name, call.args) == ("look_up", ARGUMENTS)
    result = {"name": "look_up", "response": {"result": "42"}}
    answered = client.models.generate_content(
        model="gemini-x",
        contents=[
            {"role": "user", "parts": [{"text": "what is the answer"}]},
            response.candidates[0].content,
            {"role": "user", "parts": [{"function_response": result}, {"text": "so?"}]},
        ],
    )
    assert answered.text == "echo: so?"


def test_client_raises_the_exception_for_each_refusal(client, client_of, server, genai, tmp_path):
    errors = genai.errors
    with pytest.raises(errors.ClientError) as refusal, client_of(server, "wrong") as other:
        other.models.generate_content(**ASKED)
    assert (refusal.value.code, refusal.value.status) == (401, "UNAUTHENTICATED")
    with pytest.raises(errors.ClientError) as refusal:
        client.models.generate_content(model="none", contents="hello")
    assert (refusal.value.code, refusal.value.status) == (404, "NOT_FOUND")
    pool = simulated_pool(models={"m": ("gemini-x",)})
    text = '[[fault]]\nkind = "error"\nerror = "rate_limit_exceeded"'
    with (
        running(pool, tmp_path, faults=faults_of(pool, tmp_path, text)) as full,
        client_of(full) as asking,
        pytest.raises(errors.ClientError) as refusal,
    ):
        asking.models.generate_content(**ASKED)
    assert (refusal.value.code, refusal.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert refusal.value.details["error"]["details"][0]["retryDelay"] == "1s"
