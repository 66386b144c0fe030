"""Translation of `llm.chat()` to other APIs; values without a counterpart are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.openai import encode_request
from pytest_ultrapar.apis.registry import api_named

USER = {"role": "user", "content": "Hi"}
APIS = ("anthropic", "openai-responses", "gemini")
over_apis = pytest.mark.parametrize("api", APIS)


def sent(api: str, messages=(USER,), **parameters):
    return json.loads(api_named(api).request("m", list(messages), parameters))


def refusal(api: str, messages=(USER,), **parameters) -> str:
    with pytest.raises(TypeError) as error:
        sent(api, messages, **parameters)
    said = str(error.value)
    assert said.startswith("llm.chat() ")
    return said


def call(call_id="c1", arguments="{}", name="f"):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


NOWHERE = {
    "n": 2,
    "logit_bias": {"50256": -100},
    "functions": [],
    "function_call": "auto",
    "audio": {"voice": "alloy"},
    "prediction": {"type": "content"},
    "modalities": ["text", "audio"],
    "web_search_options": {},
}
NOT_THERE = {
    "anthropic": {
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 5,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "store": True,
        "verbosity": "low",
        "reasoning_effort": "low",
    },
    "openai-responses": {
        "seed": 1,
        "stop": ["x"],
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
    },
    "gemini": {
        "logprobs": True,
        "parallel_tool_calls": False,
        "user": "u",
        "reasoning_effort": "low",
    },
}
REFUSED = [(api, name, value) for api in APIS for name, value in (NOWHERE | NOT_THERE[api]).items()]


@pytest.mark.parametrize(("api", "name", "value"), REFUSED)
def test_parameter_without_a_counterpart_is_refused_by_name(api, name, value):
    said = refusal(api, **{name: value})
    assert f"got {name!r}" in said
    assert f'api = "{api}"' in said
    assert f"{{ {name} = false }}" in said


@over_apis
def test_parameter_with_a_default_value_is_left_out(api):
    nothing = {"n": 1, "logprobs": False, "logit_bias": None, "modalities": ["text"], "seed": None}
    assert sent(api, **nothing) == sent(api)


def test_parameters_of_the_api_itself_are_passed_through():
    thinking = {"type": "adaptive"}
    body = sent("anthropic", thinking=thinking, top_k=5, cache_control={"type": "ephemeral"})
    assert (body["thinking"], body["top_k"]) == (thinking, 5)
    body = sent("openai-responses", truncation="auto", max_tool_calls=3)
    assert (body["truncation"], body["max_tool_calls"]) == ("auto", 3)
    settings = [{"category": "X", "threshold": "OFF"}]
    assert sent("gemini", safetySettings=settings)["safetySettings"] == settings


@over_apis
def test_two_bounds_on_the_answer_are_refused(api):
    said = refusal(api, max_tokens=5, max_completion_tokens=5)
    assert "max_tokens and max_completion_tokens" in said


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "background"])
def test_state_of_the_provider_and_background_are_refused(name):
    assert repr(name) in refusal("openai-responses", **{name: "resp_1"})


def test_responses_are_not_stored_by_default():
    assert sent("openai-responses")["store"] is False
    assert sent("openai-responses", store=True)["store"] is True


def test_encrypted_reasoning_is_requested_if_reasoning_is_set():
    assert "include" not in sent("openai-responses")
    body = sent("openai-responses", reasoning_effort="high", include=["x"], logprobs=True)
    assert body["reasoning"] == {"effort": "high"}
    assert body["include"] == ["x", "message.output_text.logprobs", "reasoning.encrypted_content"]
    body = sent("openai-responses", reasoning={"summary": "auto"}, reasoning_effort="low")
    assert body["reasoning"] == {"summary": "auto", "effort": "low"}


@pytest.mark.parametrize(
    ("choice", "anthropic", "responses", "gemini"),
    [
        ("auto", {"type": "auto"}, "auto", {"mode": "AUTO"}),
        ("required", {"type": "any"}, "required", {"mode": "ANY"}),
        ("none", {"type": "none"}, "none", {"mode": "NONE"}),
        (
            {"type": "function", "function": {"name": "f"}},
            {"type": "tool", "name": "f"},
            {"type": "function", "name": "f"},
            {"mode": "ANY", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_choice_of_a_tool_is_translated(choice, anthropic, responses, gemini):
    assert sent("anthropic", tool_choice=choice)["tool_choice"] == anthropic
    assert sent("openai-responses", tool_choice=choice)["tool_choice"] == responses
    assert sent("gemini", tool_choice=choice)["toolConfig"] == {"functionCallingConfig": gemini}


@over_apis
def test_unknown_choice_of_a_tool_is_refused(api):
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    assert "tool_choice" in refusal(api, tool_choice=choice)


def test_parallel_calls_can_be_disabled():
    one_by_one = {"disable_parallel_tool_use": True}
    body = sent("anthropic", parallel_tool_calls=False)
    assert body["tool_choice"] == {"type": "auto", **one_by_one}
    body = sent("anthropic", parallel_tool_calls=False, tool_choice="required")
    assert body["tool_choice"] == {"type": "any", **one_by_one}
    body = sent("anthropic", parallel_tool_calls=False, tool_choice="none")
    assert body["tool_choice"] == {"type": "none"}


@over_apis
def test_tools_of_the_api_itself_are_passed_through_and_custom_ones_refused(api):
    own = {"type": "web_search_20250305", "name": "web_search"}
    assert sent(api, tools=[own])["tools"] == [own]
    said = refusal(api, tools=[{"type": "custom", "custom": {"name": "x"}}])
    assert "tools[0] of type 'custom'" in said
    assert "tools[0]" in refusal(api, tools=["x"])


def test_strictness_of_a_tool_follows_chat_completions():
    tool = {"type": "function", "function": {"name": "f", "strict": True}}
    assert sent("anthropic", tools=[tool])["tools"][0]["strict"] is True
    assert sent("openai-responses", tools=[tool])["tools"][0]["strict"] is True
    loose = {"type": "function", "function": {"name": "f"}}
    assert "strict" not in sent("anthropic", tools=[loose])["tools"][0]
    assert sent("openai-responses", tools=[loose])["tools"][0]["strict"] is False


def test_response_format_is_translated():
    as_json = {"type": "json_object"}
    assert "json_object" in refusal("anthropic", response_format=as_json)
    assert sent("openai-responses", response_format=as_json)["text"] == {"format": as_json}
    body = sent("gemini", response_format=as_json)
    assert body["generationConfig"] == {"responseMimeType": "application/json"}
    for api in ("anthropic", "gemini"):
        assert sent(api, response_format={"type": "text"}) == sent(api)
        assert "response_format" in refusal(api, response_format={"type": "grammar"})
    body = sent("openai-responses", verbosity="low", text={"format": {"type": "text"}})
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}


IMAGES = [
    ({"url": "cat.png"}, "image_url"),
    ({"url": "data:image/png,cat"}, "image_url"),
    (5, "image_url"),
    ({"url": "https://x.example/a.png", "size": 3}, "image_url.size"),
]


@over_apis
@pytest.mark.parametrize(("image", "place"), IMAGES)
def test_invalid_image_is_refused_with_its_place(api, image, place):
    part = {"type": "image_url", "image_url": image}
    said = refusal(api, [USER, {"role": "user", "content": [{"type": "text", "text": ""}, part]}])
    assert f"messages[1].content[1].{place}" in said


def test_detail_of_an_image_has_a_counterpart_in_one_api():
    image = {"url": "https://x.example/a.png", "detail": "high"}
    message = {"role": "user", "content": [{"type": "image_url", "image_url": image}]}
    body = sent("openai-responses", [message])
    assert body["input"][0]["content"][0]["detail"] == "high"
    for api in ("anthropic", "gemini"):
        assert "image_url.detail" in refusal(api, [message])


@over_apis
def test_audio_is_refused(api):
    part = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    said = refusal(api, [{"role": "user", "content": [part]}])
    assert "messages[0].content[0] of type 'input_audio'" in said


def test_file_is_passed_to_the_responses_api():
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;..."}}
    body = sent("openai-responses", [{"role": "user", "content": [part]}])
    assert body["input"][0]["content"] == [{"type": "input_file", **part["file"]}]


@over_apis
@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "function", "name": "f", "content": ""}, "messages[1].role 'function'"),
        ({"role": "user", "content": "x", "name": "Kim"}, "messages[1].name"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "tool", "content": "x"}, "messages[1].tool_call_id"),
        ({"role": "assistant", "tool_calls": [call("")]}, "messages[1].tool_calls[0].id"),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[1].audio"),
        ({"role": "assistant", "content": [{"type": "image_url"}]}, "messages[1].content[0] of"),
    ],
)
def test_message_without_a_counterpart_is_refused_with_its_place(api, message, place):
    assert place in refusal(api, [USER, message])


def test_later_system_message_is_translated_or_refused():
    later = {"role": "system", "content": "Be brief."}
    assert sent("anthropic", [USER, later])["messages"][1] == {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief."}],
    }
    assert sent("openai-responses", [USER, later])["input"][1] == later
    assert "messages[1].role 'system' (after the first turn)" in refusal("gemini", [USER, later])


def test_several_system_messages_are_one_prompt():
    head = [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}]
    texts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert sent("anthropic", [*head, USER])["system"] == texts
    cached = {"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}
    body = sent("anthropic", [{"role": "system", "content": [cached]}, USER])
    assert body["system"] == [cached]
    parts = [{"text": "A"}, {"text": "B"}]
    assert sent("gemini", [*head, USER])["systemInstruction"] == {"parts": parts}


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "[" * 2000])
def test_invalid_arguments_are_shown_as_text(arguments):
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call("c1", arguments)]}]
    block = sent("anthropic", messages)["messages"][1]["content"][0]
    assert block["input"] == {"INVALID_JSON": arguments}
    (part,) = sent("gemini", messages)["contents"][1]["parts"]
    assert part["functionCall"]["args"] == {"INVALID_JSON": arguments}
    assert sent("openai-responses", messages)["input"][1]["arguments"] == arguments


def test_refusal_of_the_model_becomes_its_text():
    said = {"role": "assistant", "content": None, "refusal": "No."}
    assert sent("anthropic", [USER, said])["messages"][1]["content"] == "No."
    assert sent("openai-responses", [USER, said])["input"][1]["content"] == "No."
    assert sent("gemini", [USER, said])["contents"][1]["parts"] == [{"text": "No."}]


def test_result_with_an_image_is_translated_or_refused():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    result = {"role": "tool", "tool_call_id": "c1", "content": [image]}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call()]}, result]
    (block,) = sent("anthropic", messages)["messages"][2]["content"]
    assert block["content"][0]["source"]["data"] == "AA=="
    assert sent("openai-responses", messages)["input"][2]["output"][0]["type"] == "input_image"
    assert "(a part is not text)" in refusal("gemini", messages)


def test_gemini_finds_the_function_of_a_result_by_its_call():
    asked = {"role": "assistant", "content": None, "tool_calls": [call("ultrapar-0", name="g")]}
    result = {"role": "tool", "tool_call_id": "ultrapar-0", "content": "5"}
    turns = sent("gemini", [USER, asked, result])["contents"]
    assert turns[1]["parts"] == [{"functionCall": {"name": "g", "args": {}}}]
    assert turns[2]["parts"] == [{"functionResponse": {"name": "g", "response": {"output": "5"}}}]
    assert "(no earlier call has this id)" in refusal("gemini", [USER, result])


TURNS = {
    "anthropic": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Yes."},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
    ],
    "openai-responses": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
    ],
    "gemini": [
        {"text": "Hm.", "thought": True},
        {"text": "Yes."},
        {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
    ],
}
SAID = {"role": "assistant", "content": "Yes.", "tool_calls": [call("c1", '{"a":1}')]}


def turn_of(api: str, message):
    body = sent(api, [USER, message])
    if api == "openai-responses":
        return body["input"][1:]
    if api == "gemini":
        return body["contents"][1]["parts"]
    return body["messages"][1]["content"]


@over_apis
def test_native_turn_is_sent_back_while_its_message_is_unchanged(api):
    native = {"api": api, "turn": TURNS[api]}
    came = [one for one in TURNS[api] if one != {"type": "text", "text": ""}]
    assert turn_of(api, {**SAID, "native": native}) == came
    plain = turn_of(api, SAID)
    assert plain != came
    changed = (
        {"content": "No."},
        {"content": None},
        {"tool_calls": None},
        {"tool_calls": [call("c2", '{"a":1}')]},
        {"tool_calls": [call("c1", '{"a":2}')]},
        {"native": {**native, "api": "another"}},
        {"native": {"api": api}},
        {"native": "x"},
        {"native": None},
    )
    for change in changed:
        message = {**SAID, "native": native, **change}
        without = {name: value for name, value in message.items() if name != "native"}
        assert turn_of(api, message) == turn_of(api, without)


def test_native_turn_of_another_api_is_not_sent_to_chat_completions():
    message = {**SAID, "native": {"api": "anthropic", "turn": TURNS["anthropic"]}}
    assert json.loads(encode_request("m", [USER, message], {}))["messages"] == [USER, SAID]


@over_apis
def test_surrogates_raise_an_encoding_error(api):
    with pytest.raises(UnicodeEncodeError):
        sent(api, [{"role": "user", "content": "\ud800"}])
    with pytest.raises(UnicodeEncodeError):
        sent(api, [USER, {"role": "assistant", "tool_calls": [call("c", '{"a": "\ud800"}')]}])


texts = st.text(max_size=5)
parts = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["text", "image_url", "input_audio", "refusal", "x"]),
            "text": texts | st.none(),
            "image_url": texts | st.dictionaries(st.sampled_from(["url", "detail"]), texts),
            "refusal": texts,
        },
    ),
    max_size=3,
)
messages_of_all_kinds = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "x"])},
        optional={
            "content": texts | st.none() | parts | st.integers(),
            "tool_calls": st.lists(
                st.builds(call, texts, texts, texts) | st.dictionaries(texts, texts), max_size=2
            ),
            "tool_call_id": texts,
            "native": st.dictionaries(st.sampled_from(["api", "turn"]), texts | parts),
        },
    ),
    max_size=4,
)


@over_apis
@given(messages=messages_of_all_kinds)
def test_any_messages_are_sent_or_refused_with_a_type_error(api, messages):
    said = "llm.chat() "
    try:
        sent(api, messages)
    except TypeError as error:
        said = str(error)
    assert said.startswith("llm.chat() ")
