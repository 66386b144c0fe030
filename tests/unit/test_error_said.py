"""The meaning of error bodies of several servers, also if they quote a prompt."""

from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.classify import classify_status, read_error
from pytest_ultrapar.apis.registry import api_named

PROMPT = (
    "What is the maximum context length of a context window? context_length_exceeded, "
    "content_filter and content management policy: explain. insufficient_quota, requests per day. "
    "I do not have access to it."
)
TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
REQUEST = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
FASTAPI = {
    "detail": [
        {"type": "missing", "loc": ["body", "model"], "msg": "Field required", "input": REQUEST}
    ]
}


def failure(body: object, status: int = 400) -> tuple[str, str | None]:
    found = classify_status(status, json.dumps(body).encode(), None)
    return found.outcome, found.refused_kind


@pytest.mark.parametrize("status", [400, 418, 422])
@pytest.mark.parametrize(
    "body",
    [
        FASTAPI,
        {"error": {"message": "bad temperature", "code": None}, "request": REQUEST},
        {"object": "error", "message": "bad", "code": 400, "body": REQUEST},
        # vLLM prints pydantic's list into the message.
        {"object": "error", "message": str(FASTAPI["detail"]), "type": "BadRequestError"},
        # Longer than the part that is read.
        {"detail": [{"msg": "Field required", "input": PROMPT * 1000}]},
        [{"error": {"message": "bad", "prompt": PROMPT}}],
    ],
)
def test_prompt_in_an_error_does_not_affect_its_class(body, status):
    assert failure(body, status) == ("bad_request", None)


def test_prompt_in_a_404_or_429_does_not_affect_its_class():
    assert failure(FASTAPI, 404) == ("not_found", None)
    assert failure({"detail": [{"input": PROMPT}]}, 429) == ("rate", None)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": TOO_LONG, "type": "invalid_request_error", "param": "messages"}},
        {"error": {"message": "Input exceeds the context window of this model."}},
        {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "code": 400},
        {"detail": TOO_LONG},
        {"message": TOO_LONG, "input": PROMPT},
        TOO_LONG,
    ],
)
def test_too_long_prompt_is_refused_in_the_words_of_every_server(body):
    assert failure(body) == ("refused", "context_length")


def test_text_without_json_is_read_as_the_message():
    assert classify_status(400, TOO_LONG.encode(), None).refused_kind == "context_length"


@pytest.mark.parametrize("inner", ["innererror", "inner_error"])
def test_azures_filter_is_read_from_the_error_and_its_inner_error(inner):
    filtered = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {}}}
    message = "The response was filtered due to the prompt."
    assert failure({"error": {"code": "400", "message": message, inner: filtered}}) == (
        "refused",
        "content_filter",
    )
    assert failure({"error": {"code": "content_filter", "message": message}}) == (
        "refused",
        "content_filter",
    )
    managed = "triggering Azure OpenAI's content management policy."
    assert failure({"error": {"code": None, "message": managed}}) == ("refused", "content_filter")


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"error": null}',
        b'{"error": {"code": 1' + b"0" * 5000 + b"}}",
        b'{"error": {"message": "\xff"}}',
        b'{"error": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_error_without_a_message_can_be_read(body):
    assert len(read_error(body).text) <= 16_384
    assert classify_status(400, body, None).outcome == "bad_request"


def google(*details: object, message: str = "Quota exceeded.") -> bytes:
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message}
    return json.dumps({"error": {**error, "details": list(details)}}).encode()


def violated(quota: str) -> dict[str, object]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": quota}],
    }


@pytest.mark.parametrize(
    ("quota", "outcome", "exceeded"),
    [
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "daily_quota", None),
        ("GenerateRequestsPerMinutePerProjectPerModel", "rate", "rate"),
        ("GenerateContentInputTokensPerModelPerMinute", "rate", "tokens"),
        ("", "rate", None),
    ],
)
def test_googles_quota_is_recognised_by_its_id(quota, outcome, exceeded):
    body = google(violated(quota), {"@type": "Help", "links": [{"url": "x"}]})
    found = classify_status(429, body, None)
    assert (found.outcome, found.exceeded) == (outcome, exceeded)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("34.074824224s", 34.074824224),
        ("0s", None),
        ("inf", None),
        ("9999999s", 7 * 86_400),
        ("99999999s", None),
        ("soon", None),
    ],
)
def test_googles_delay_is_read_from_the_details(delay, seconds):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    assert read_error(google(info)).back_s == seconds
    failure = api_named("gemini").failure(429, google(info), {}, epoch_s=0.0)
    assert failure.retry_after_s == seconds
    asked = api_named("gemini").failure(429, google(info), {"retry-after": "3"}, epoch_s=0.0)
    assert asked.retry_after_s == 3


@pytest.mark.parametrize("details", [None, "x", [5], {"reason": "x"}, [{"violations": "x"}]])
def test_invalid_details_do_not_affect_the_error(details):
    error = {"error": {"code": 429, "message": "requests per minute", "details": details}}
    found = classify_status(429, json.dumps(error).encode(), None)
    assert (found.outcome, found.exceeded) == ("rate", "rate")


@pytest.mark.parametrize(
    "details",
    [
        lambda: [{"reason": f"r{number}"} for number in range(100_000)],
        lambda: [{"reason": "r" * 1_000 + str(number)} for number in range(5_000)],
        lambda: [{"violations": [{"quotaId": "q" * 1_000 + str(n)} for n in range(5_000)]}],
        lambda: {"reason": "r" * 5_000_000},
        lambda: [{"retryDelay": "1s" * 500} for _ in range(5_000)],
    ],
    ids=["many", "long", "violations", "one", "delays"],
)
def test_only_a_part_of_a_huge_error_is_read(details):
    for place in (lambda one: {"error": one}, lambda one: [{"error": one}] * 2):
        body = place({"message": "Rate limit of tokens", "details": details()})
        found = classify_status(429, json.dumps(body).encode(), None)
        assert found.outcome == "rate"
        assert "rate limit of tokens" in found.said
        assert len(found.said) < 40_000


def test_list_of_many_errors_is_read_as_text():
    body = b'[{"message": "Rate limit"}' + b",{}" * 1_000_000 + b"]"
    found = read_error(body)
    assert "rate limit" in found.message
    assert len(found.text) < 40_000
