"""The official `mistralai` client on a real server of ours."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from tests.simulated_pool import PROVIDER, running, simulated_pool

# The client is seconds of imports; that of OpenAI is looked at in every run.
pytestmark = pytest.mark.slow

ASKED = {"model": "m", "messages": [{"role": "user", "content": "what is the answer"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    },
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Importing it takes seconds, which every worker that collects would wait."""
    with running(simulated_pool(), tmp_path_factory.mktemp("mistral")) as server:
        url = server.base_url(PROVIDER).removesuffix("/v1")
        module = import_module("mistralai.client")
        with module.Mistral(api_key="sim-lab-key0", server_url=url) as made:
            yield made


def test_client_reads_a_completion_and_a_stream(client):
    completion = client.chat.complete(random_seed=1, **ASKED)
    assert completion.choices[0].message.content == "echo: what is the answer"
    assert completion.usage.total_tokens == 5 + 6
    with client.chat.stream(random_seed=1, **ASKED) as stream:
        chunks = [event.data for event in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "echo: what is the answer"
    assert {chunk.id for chunk in chunks} == {completion.id}


def test_client_calls_a_tool(client):
    completion = client.chat.complete(tools=[TOOL], tool_choice="any", **ASKED)
    (call,) = completion.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"query": "what is the answer"}


def test_client_raises_what_a_refusal_means(client):
    errors = import_module("mistralai.client.errors")
    with pytest.raises(errors.SDKError) as refusal:
        client.chat.complete(**{**ASKED, "model": "none"})
    assert refusal.value.status_code == 404
