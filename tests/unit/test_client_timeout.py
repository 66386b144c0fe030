"""The timeout of a client, read from the headers of its request."""

from __future__ import annotations

import pytest

from pytest_ultrapar.engine.client_timeout import client_timeout_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 600),
        ({"user-agent": "python-requests/2.32"}, 600),
        ({"user-agent": "OpenAI/Python 2.1", "x-stainless-read-timeout": "30.5"}, 30.5),
        ({"user-agent": "OpenAI/Python 2.1", "x-stainless-read-timeout": "6000"}, 6000),
        ({"user-agent": "Anthropic/JS 1.0", "x-stainless-timeout": "600"}, 300),
        ({"user-agent": "OpenAI/JS 6.1", "x-stainless-timeout": "60"}, 60),
        ({"user-agent": "google-genai-sdk/1.0", "x-server-timeout": "45"}, 45),
        ({"user-agent": "Python/3.12 aiohttp/3.13"}, 300),
        ({"user-agent": "node"}, 300),
        ({"user-agent": "ai-sdk/openai/2.0 ai-sdk/provider-utils/3.0 runtime/node.js/22"}, 300),
        ({"x-stainless-read-timeout": "Timeout(5)"}, 600),
        ({"x-stainless-read-timeout": "nan"}, 600),
        ({"x-stainless-read-timeout": "inf"}, 600),
        ({"x-stainless-read-timeout": "-1", "x-stainless-timeout": "7"}, 7),
    ],
)
def test_wait_comes_from_the_headers_or_the_default_of_the_client(headers, seconds):
    assert client_timeout_s(headers) == seconds
