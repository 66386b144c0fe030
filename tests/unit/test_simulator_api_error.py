from __future__ import annotations

import json

import pytest

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.apis.retry_after import parse_retry_after
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.limits import Exceeded
from pytest_ultrapar.simulator.wire.chat import RESOURCE


def headers_of(error):
    return {name.decode(): value.decode() for name, value in RESOURCE.refusal(error).headers}


def test_over_limit_names_the_limit_and_the_wait():
    error = ApiError.over_limit(Exceeded("lab/key0", "qps", 2.5, 0.0301))
    assert headers_of(error) == {"retry-after": "1", "retry-after-ms": "31"}
    body = json.loads(RESOURCE.refusal(error).body)["error"]
    assert body["code"] == "rate_limit_exceeded"
    assert "lab/key0" in body["message"]
    assert "2.5 requests in 1 s" in body["message"]


def test_over_limit_never_asks_for_a_wait_of_zero():
    error = ApiError.over_limit(Exceeded("k", "rpm", 1, 1e-9))
    assert headers_of(error) == {"retry-after": "1", "retry-after-ms": "1"}


def test_over_limit_is_understood_by_the_plugins_client():
    error = ApiError.over_limit(Exceeded("k", "workers", 1, 1.0))
    wait_s = parse_retry_after(headers_of(error), epoch_s=0.0)
    failure = classify_status(error.status, RESOURCE.refusal(error).body, wait_s)
    assert (failure.outcome, failure.retry_after_s) == ("rate", 1.0)


@pytest.mark.parametrize("status", [*range(400, 430), *range(500, 510)])
def test_refusal_has_the_failure_class_of_its_status(status):
    error = ApiError.of_status(status, "no")
    body = RESOURCE.refusal(error).body
    assert error.status == status
    assert classify_status(status, body, None).outcome == classify_status(status, b"", None).outcome
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
