from __future__ import annotations

import json
import random

import httpx
import pytest

from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import PROVIDER, bearer, question, refusing, running, simulated_pool


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pool = simulated_pool(models={"m": ("i0", "i1"), "n": ("i2",)}, keys=("key0", "key1"))
    with running(pool, tmp_path_factory.mktemp("answers")) as process:
        yield process


@pytest.fixture
def post(server):
    def send(body, headers=None, path="/chat/completions"):
        return httpx.post(
            server.base_url(PROVIDER) + path,
            headers=bearer() if headers is None else headers,
            **({"content": body} if isinstance(body, bytes) else {"json": body}),
            timeout=60.0,
        )

    return send


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-0123456789"},
        {"authorization": "Basic sim-lab-key0"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer sim-other-key0"},
        {"api-key": "sk-0123456789"},
    ],
)
def test_unknown_token_gets_a_401_that_does_not_repeat_it(post, headers):
    response = post(question(model="i0"), headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert "0123" not in response.text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"model": "i0", "messages": [', "truncated"),
        (b"", "truncated"),
        ({"model": "i0"}, "messages"),
        ({"model": "i0", "messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "i0", "messages": [{"role": "user", "content": 5}]}, "content"),
        (b'{"model": "i0", "messages": [{"role": "user", "content": "\xff"}]}', "utf-8"),
    ],
)
def test_unreadable_request_gets_a_400_with_the_reason(post, body, says):
    response = post(body)
    assert response.status_code == 400
    # Releases of msgspec spell it in two ways.
    assert says in response.json()["error"]["message"].lower()
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_body_of_a_megabyte_is_read_and_a_longer_one_gets_a_413(post):
    empty = json.dumps(question("", "i0")).encode()
    longest = json.dumps(question("x" * (1024 * 1024 - len(empty)), "i0")).encode()
    assert len(longest) == 1024 * 1024
    assert post(longest).status_code == 200
    response = post(longest + b" ")
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_connection_can_be_used_after_a_413(server):
    with httpx.Client(headers=bearer(), base_url=server.base_url(PROVIDER), timeout=60.0) as client:
        statuses = [
            client.post("/chat/completions", content=body).status_code
            for body in (b"x" * 3_000_000, json.dumps(question(model="i0")).encode())
        ]
    assert statuses == [413, 200]


def test_other_paths_and_methods_are_refused(server, post):
    assert post(question(), path="/images/generations").status_code == 404
    url = server.base_url(PROVIDER) + "/chat/completions"
    assert httpx.get(url, headers=bearer(), timeout=60.0).status_code == 405
    assert (
        httpx.post(url.replace("/lab/", "/other/"), headers=bearer(), timeout=60.0).status_code
        == 404
    )


def test_models_are_listed(server):
    url = server.base_url(PROVIDER) + "/models"
    listed = httpx.get(url, headers=bearer(), timeout=60.0).json()["data"]
    assert [model["id"] for model in listed] == ["i0", "i1", "i2"]
    assert httpx.get(url, timeout=60.0).status_code == 401


def test_answers_and_latencies_do_not_depend_on_order_instance_or_key(tmp_path):
    pool = simulated_pool(
        models={"m": ("i0", "i1")},
        keys=("key0", "key1"),
        latency=Latency("log-normal", 0.004, 0.8),
        seed=5,
    )
    texts = [f"question {n}" for n in range(12)]
    lanes = [(i, k) for i in ("i0", "i1") for k in ("key0", "key1")]

    def ask_all(directory, seed):
        order = random.Random(seed)
        answers = {}
        directory.mkdir()
        with running(pool, directory) as server, httpx.Client(timeout=60.0) as client:
            url = server.base_url(PROVIDER) + "/chat/completions"
            for text in order.sample(texts, len(texts)):
                instance, key = order.choice(lanes)
                response = client.post(url, headers=bearer(key), json=question(text, instance))
                body = response.json()
                answers[text] = (body["id"], body["choices"], body["usage"])
        return answers, {r.instance for r in read_server_log(directory / "server.log").requests}

    first, lanes_of_first = ask_all(tmp_path / "one", 1)
    other, lanes_of_other = ask_all(tmp_path / "two", 2)
    assert lanes_of_first == lanes_of_other == {"i0", "i1"}
    assert first == other


def test_refusals_apply_only_to_their_lanes(tmp_path):
    pool = simulated_pool(models={"m": ("i0", "i1")}, keys=("key0", "key1"))
    refusals = refusing(pool, {"key1": 401, "instance:i1": 429})
    with running(pool, tmp_path, faults=refusals) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        responses = {
            (key, i): httpx.post(url, headers=bearer(key), json=question(model=i), timeout=60.0)
            for key in ("key0", "key1")
            for i in ("i0", "i1")
        }
    assert {place: r.status_code for place, r in responses.items()} == {
        ("key0", "i0"): 200,
        ("key0", "i1"): 429,
        ("key1", "i0"): 401,
        ("key1", "i1"): 401,
    }
    assert responses["key0", "i1"].headers["retry-after"] == "1"


def test_chosen_tokens_are_accepted_and_never_logged(tmp_path):
    tokens = {f"{PROVIDER}/key0": "s3cret-token"}
    with running(simulated_pool(), tmp_path, tokens=tokens) as server:
        url = server.base_url(PROVIDER) + "/chat/completions"
        for token, status in (("s3cret-token", 200), ("sim-lab-key0", 401)):
            headers = {"authorization": f"Bearer {token}"}
            assert (
                httpx.post(url, headers=headers, json=question(), timeout=60.0).status_code
                == status
            )
    written = (tmp_path / "server.log").read_text()
    assert "s3cret" not in written
    assert "sim-lab" not in written
    log = read_server_log(tmp_path / "server.log")
    assert [(row.key, row.model) for row in log.requests] == [("key0", "m"), (None, None)]
