from __future__ import annotations

import math
import statistics

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.random_draws import Draw

TEXTS = st.lists(st.text(max_size=20), min_size=1, max_size=4)


def draw(texts=("hi",), *, model="m", seed=0, request_seed=None):
    messages = [ChatMessage("user", text) for text in texts]
    return Draw(messages, model=model, seed=seed, request_seed=request_seed)


@given(texts=TEXTS)
def test_draw_is_the_same_for_the_same_messages(texts):
    latency = Latency("log-normal", 1.0, 0.5)
    one, other = draw(texts), draw(texts)
    assert one.name == other.name
    assert one.rng().random() == other.rng().random()
    assert one.latency_s(latency) == other.latency_s(latency)


def test_draw_differs_by_text_role_model_and_seeds():
    draws = [
        draw(),
        draw(("hi", "")),
        draw(("h", "i")),
        draw(model="n"),
        draw(seed=1),
        draw(request_seed=0),
        draw(request_seed=1),
        Draw([ChatMessage("system", "hi")], model="m", seed=0, request_seed=None),
    ]
    assert len({d.name for d in draws}) == len(draws)
    assert len({d.rng().random() for d in draws}) == len(draws)


def test_draw_gives_a_fresh_source_each_time():
    one = draw()
    assert one.rng().random() == one.rng().random()


def test_fixed_latency_is_its_median():
    assert draw().latency_s(Latency("fixed", 0.25, 0.0)) == 0.25


def test_log_normal_latency_has_its_median_and_sigma():
    latency = Latency("log-normal", 2.0, 0.5)
    logs = [math.log(draw((str(n),)).latency_s(latency)) for n in range(4000)]
    # Standard errors are 0.008 and 0.006; the draws are the same in every run of this test.
    assert abs(statistics.fmean(logs) - math.log(2.0)) < 0.03
    assert abs(statistics.stdev(logs) - 0.5) < 0.025


def test_log_normal_latency_without_sigma_is_its_median():
    assert draw().latency_s(Latency("log-normal", 2.0, 0.0)) == 2.0
