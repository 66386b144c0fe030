from __future__ import annotations

import math

import pytest

from pytest_ultrapar.apis.reply import Reply
from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.broker.high_quantile import ANSWER_TOKENS, FEW, REMEMBERED, HighQuantile
from pytest_ultrapar.engine.token_estimate import (
    MOST_TOKENS,
    TOKENS_PER_ATTACHMENT,
    TOKENS_PER_BYTE,
    TOKENS_PER_MESSAGE,
    TokenEstimates,
)
from pytest_ultrapar.pool.model import LaneId, Limit
from tests.pools import lane, pool

QUESTION = {"messages": [{"role": "user", "content": "x" * 300}]}
FIXED = 2 * TOKENS_PER_MESSAGE


@pytest.fixture
def estimates():
    return TokenEstimates({"m": 100_000.0})


def reply(tokens_in, tokens_out) -> Reply:
    return Reply("", None, (), "stop", tokens_in, tokens_out, LaneId("p/i/k"), 0.1)


def learn(estimates, tokens_in, tokens_out, n=FEW) -> None:
    for _ in range(n):
        estimates.learn("m", asked_of(QUESTION), reply(tokens_in, tokens_out), is_first=True)


def test_estimate_before_any_answer_is_the_default(estimates):
    prompt = math.ceil(300 * TOKENS_PER_BYTE) + FIXED
    assert estimates.of_request("m", asked_of(QUESTION)) == prompt + ANSWER_TOKENS


@pytest.mark.parametrize(
    ("parameters", "answer"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_completion_tokens": 70, "max_tokens": 50}, 50),
        ({"max_tokens": 50, "n": 3}, 150),
        ({"max_tokens": None}, ANSWER_TOKENS),
        ({"max_tokens": "50"}, ANSWER_TOKENS),
    ],
)
def test_bound_of_the_answer_counts_fully(estimates, parameters, answer):
    prompt = math.ceil(300 * TOKENS_PER_BYTE) + FIXED
    assert estimates.of_request("m", asked_of({**QUESTION, **parameters})) == prompt + answer


def test_estimate_follows_the_use_of_answers(estimates):
    learn(estimates, 60 + FIXED, 20)
    assert estimates.of_request("m", asked_of(QUESTION)) == 60 + FIXED + 20
    assert estimates.of_first("m") == 60 + FIXED + 20
    learn(estimates, 60 + FIXED, 200, n=1)
    assert estimates.of_request("m", asked_of(QUESTION)) == 60 + FIXED + 200


def test_few_answers_do_not_lower_the_default_estimate(estimates):
    learn(estimates, 60, 20, n=FEW - 1)
    assert estimates.of_request("m", asked_of(QUESTION)) > ANSWER_TOKENS


def test_answer_without_usage_does_not_change_the_estimate(estimates):
    before = estimates.of_request("m", asked_of(QUESTION))
    learn(estimates, None, None)
    assert estimates.of_request("m", asked_of(QUESTION)) == before


@pytest.mark.parametrize(
    ("least", "tokens"), [(100_000.0, 2000), (1000.0, 50), (1.0, 1), (1e9, 2000)]
)
def test_default_of_a_first_request_is_a_small_share_of_the_limit(least, tokens):
    assert TokenEstimates({"m": least}).of_first("m") == tokens


def test_first_request_never_reserves_more_than_a_lane_can_grant():
    estimates = TokenEstimates({"m": 100.0})
    learn(estimates, 60 + FIXED, 5000)
    assert estimates.of_first("m") == 100
    assert estimates.of_request("m", asked_of(QUESTION)) > 5000


def test_prompt_is_measured_in_bytes_with_tools_and_without_attachments(estimates):
    def prompt(content, **parameters) -> int:
        message = {"role": "user", "content": content}
        asked = asked_of({"messages": [message], "max_tokens": 1, **parameters})
        return estimates.of_request("m", asked) - FIXED - 1

    assert prompt("x" * 300) == 100
    assert prompt("\u4f60" * 100) == 100
    assert prompt("\ud800" * 3) > 0
    assert prompt(None) == 0
    assert prompt([{"type": "text", "text": "x" * 300}]) == 100
    picture = {"type": "image_url", "image_url": {"url": "data:" + "x" * 100_000}}
    assert prompt([picture]) == TOKENS_PER_ATTACHMENT
    assert prompt("", tools=[{"name": "x" * 300}]) > 100
    assert prompt("", tools=object()) == 0


def test_models_without_a_limit_reserve_nothing(estimates):
    assert estimates.of_first("other") == 0
    assert estimates.of_request("other", asked_of(QUESTION)) == 0


def test_quantile_forgets_old_values():
    high = HighQuantile(10.0)
    assert high.value == 10
    for value in (50.0, *[1.0] * REMEMBERED):
        high.add(value)
    assert high.value == 1.0
    for value in range(100):
        high.add(value)
    assert high.value == 36 + math.ceil(0.95 * REMEMBERED) - 1


def test_estimates_know_the_smallest_limit_of_each_model():
    limits = [
        Limit("a", "key", tpm=1000),
        Limit("b", "instance", tpm=400),
        Limit("c", "key", qps=1),
    ]
    paths = {"i0": "ma", "i1": "mab", "i2": "nac", "i3": "oc"}
    lanes = [lane(name, "k", *path, model=model) for name, (model, *path) in paths.items()]
    estimates = TokenEstimates.of(pool(lanes, *limits))
    assert estimates is not None
    assert [estimates.of_first(model) for model in "mno"] == [20, 50, 0]
    assert TokenEstimates.of(pool(lanes[3:], *limits)) is None


def test_estimate_of_an_absurd_request_fits_a_message(estimates):
    assert estimates.of_request("m", asked_of({**QUESTION, "max_tokens": 10**30})) == MOST_TOKENS
