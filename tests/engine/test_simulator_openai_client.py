"""The official `openai` client against a real simulator."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from tests.simulated_pool import ARGUMENTS, MESSAGES, PARAMETERS, PROVIDER, running, simulated_pool

pytestmark = pytest.mark.slow
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": PARAMETERS}}]


@pytest.fixture(scope="module")
def openai():
    """The client. Its import takes a second, which would delay every worker's collection."""
    return import_module("openai")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pool = simulated_pool(models={"m": ("gpt-x", "i1")})
    with running(pool, tmp_path_factory.mktemp("openai")) as process:
        yield process


@pytest.fixture(params=["openai", "azure"])
def client(request, server, openai):
    if request.param == "openai":
        with openai.OpenAI(
            api_key="sim-lab-key0", base_url=server.base_url(PROVIDER), max_retries=0
        ) as made:
            yield made
        return
    with openai.AzureOpenAI(
        api_key="sim-lab-key0",
        azure_endpoint=server.base_url(PROVIDER).removesuffix("/v1"),
        api_version="2024-10-21",
        max_retries=0,
    ) as made:
        yield made


def test_client_reads_a_tool_call(client):
    completion = client.chat.completions.create(
        model="gpt-x", messages=MESSAGES, tools=TOOLS, tool_choice="required"
    )
    (call,) = completion.choices[0].message.tool_calls
    assert completion.choices[0].message.content is None
    assert call.function.name == "look_up"
    assert json.loads(call.function.arguments) == ARGUMENTS
    # The client sends the received message back as part of the conversation.
    answered = client.chat.completions.create(
        model="gpt-x",
        messages=[
            *MESSAGES,
            completion.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "42"},
            {"role": "user", "content": "so?"},
        ],
    )
    assert answered.choices[0].message.content == "echo: so?"


def test_client_raises_the_exceptions_for_an_unknown_key_and_model(server, client, openai):
    with pytest.raises(openai.AuthenticationError) as refusal:
        client.copy(api_key="sk-wrong").chat.completions.create(model="gpt-x", messages=MESSAGES)
    assert refusal.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="none", messages=MESSAGES)


FUNCTION = {"type": "function", "strict": False, **TOOLS[0]["function"]}


def test_client_reads_the_events_of_a_response(client):
    with client.responses.stream(model="gpt-x", input="what is the answer") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert final.output_text == "echo: what is the answer"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text
    assert final.usage.total_tokens == 5 + 6


def test_client_continues_after_a_tool_call_of_a_response(client):
    asked = {"model": "gpt-x", "tools": [FUNCTION]}
    first = client.responses.create(input=MESSAGES, tool_choice="required", **asked)
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "look_up")
    assert json.loads(call.arguments) == ARGUMENTS
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    heard = [result, {"role": "user", "content": "so?"}]
    second = client.responses.create(input=[*MESSAGES, call, *heard], **asked)
    assert second.output_text == "echo: so?"
