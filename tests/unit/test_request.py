"""The fields of requests of all APIs that decide their load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.simulator.wire.chat import Chat
from pytest_ultrapar.simulator.wire.generate_content import GenerateContent
from pytest_ultrapar.simulator.wire.messages import Messages
from pytest_ultrapar.simulator.wire.responses import Responses
from tests.unit.test_provider_state import encoded

USER = {"role": "user", "content": "Hi"}
SCOPE = {"path": "/", "headers": [(b"anthropic-version", b"2023-06-01")], "query_string": b""}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


@pytest.mark.parametrize(
    ("fields", "bound", "n_answers"),
    [
        ({}, None, 1),
        ({"max_tokens": 50, "n": 3}, 50, 3),
        ({"max_completion_tokens": 70, "max_tokens": 50}, 50, 1),
        ({"max_output_tokens": 9}, 9, 1),
        ({"max_tokens": None, "n": None}, None, 1),
        ({"max_tokens": "50", "n": "3"}, None, 1),
        ({"max_tokens": True, "n": True}, None, 1),
        ({"max_tokens": -1, "n": 0}, None, 1),
        ({"prompt": ["a", "b"], "n": 2, "best_of": 5}, None, 10),
        ({"prompt": [[1, 2], [3]]}, None, 2),
        ({"prompt": [1, 2, 3]}, None, 1),
        ({"generationConfig": {"maxOutputTokens": 7, "candidateCount": 4}}, 7, 4),
        ({"generation_config": {"candidate_count": 4}}, None, 4),
        ({"generationConfig": 5}, None, 1),
    ],
)
def test_bound_and_number_of_answers_are_read(fields, bound, n_answers):
    asked = asked_of(fields)
    assert (asked.bound, asked.n_answers) == (bound, n_answers)


@pytest.mark.parametrize(
    ("fields", "leaves"),
    [({}, True), ({"max_tokens": None}, False), ({"max_tokens": 5}, False)],
)
def test_pools_bound_applies_to_requests_without_one(fields, leaves):
    assert asked_of(fields).leaves_bound is leaves


def test_instructions_of_all_apis_are_messages():
    for fields in (
        {"system": "Be kind."},
        {"instructions": "Be kind."},
        {"systemInstruction": {"parts": [{"text": "Be kind."}]}},
        {"system_instruction": {"parts": [{"text": "Be kind."}]}},
    ):
        (said,) = asked_of(fields).messages
        assert said["role"] == "system"
        assert said["content"] in ("Be kind.", [{"text": "Be kind."}])


@pytest.mark.parametrize(
    ("part", "n"),
    [
        ({"image_url": {"url": "https://a.example/b.png"}}, 1),
        ({"image_url": {"url": "data:image/png;base64,AA"}}, 0),
        ({"image_url": "https://a.example/b.png"}, 1),
        ({"file_id": "file-1"}, 1),
        ({"file": {"file_id": "file-1"}}, 1),
        ({"source": {"type": "url", "url": "https://a.example/b.pdf"}}, 1),
        ({"source": {"type": "base64", "data": "AA"}}, 0),
        ({"fileData": {"fileUri": "gs://b/c"}}, 1),
        ({"text": "https://a.example"}, 0),
    ],
)
def test_attachments_given_by_reference_are_counted(part, n):
    for fields in ({"messages": [{"role": "user", "content": [part]}]}, {"input": [part]}):
        assert asked_of(fields).n_named == n


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, "conv_1"),
        ({"cachedContent": "cachedContents/1"}, "cachedContents/1"),
        ({"previous_response_id": None}, None),
        ({"conversation": {"id": 5}}, None),
    ],
)
def test_state_that_a_request_continues_is_named(fields, name):
    assert asked_of(fields).goes_on == name


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        (Chat(), {"messages": [USER], "max_tokens": 9, "n": 3}),
        (Messages(), {"messages": [USER], "max_tokens": 9}),
        (Responses(), {"input": "Hi", "max_output_tokens": 9}),
        (GenerateContent(), {**CONTENTS, "generationConfig": {"maxOutputTokens": 9}}),
    ],
    ids=["chat", "messages", "responses", "gemini"],
)
def test_simulated_provider_reads_the_same_fields(resource, fields):
    there = resource.read(encoded({"model": "m", **fields}), name="m", scope=SCOPE)
    asked = asked_of(fields)
    assert (asked.bound, asked.n_answers) == (there.max_tokens, there.n)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["messages", "input", "contents", "prompt", "system", "n", "max_tokens", "generationConfig"]
)


@given(st.dictionaries(FIELDS, ANY))
def test_any_body_is_read(fields):
    asked = asked_of(fields)
    assert asked.n_answers >= 1
    assert asked.bound is None or asked.bound > 0
    assert all(isinstance(one, dict) for one in asked.messages)
