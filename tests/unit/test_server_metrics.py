"""The queue of a server, read from Prometheus text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.adaptive.server_load import ServerLoad, parse_load

TEXT = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-7B-Instruct"} 12.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen2.5-7B-Instruct"} 3.0
vllm:num_requests_running{engine="0",model_name="other"} 100.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-7B-Instruct",engine="0"} 4 1742624005570
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen2.5-7B-Instruct"} 50.0
vllm:num_requests_swapped{model_name="Qwen/Qwen2.5-7B-Instruct"} 9.0
vllm:e2e_request_latency_seconds_bucket{le="1.0",model_name="Qwen/Qwen2.5-7B-Instruct"} 7.0
"""


def test_load_is_summed_over_engines_and_models():
    assert parse_load(TEXT) == ServerLoad(115.0, 4.0)


@pytest.mark.parametrize(
    "text",
    [
        'sglang:num_running_reqs{model_name="m"} 3.0\nsglang:num_queue_reqs{model_name="m"} 1.0\n',
        "# TYPE tgi_queue_size gauge\ntgi_queue_size 1\ntgi_batch_current_size 3\n",
        "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n",
    ],
)
def test_metrics_of_several_servers_are_read(text):
    assert parse_load(text) == ServerLoad(3.0, 1.0)


def test_sample_needs_no_labels_and_labels_may_hold_braces():
    text = 'vllm:num_requests_running 2\nvllm:num_requests_waiting{a="}",model_name="a\\"b"} 1\n'
    assert parse_load(text) == ServerLoad(2.0, 1.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "many", ""])
def test_invalid_count_is_unknown(value):
    assert parse_load(f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 1") is None


def test_text_without_both_metrics_gives_no_load():
    assert parse_load("") is None
    assert parse_load("vllm:num_requests_running 2\n") is None


@pytest.mark.parametrize("filler", ["}", "{", '"', " ", "{}", "} "])
def test_large_text_is_read_in_linear_time(filler):
    begun_s = time.process_time()
    parse_load("vllm:num_requests_running{" + filler * (2_000_000 // len(filler)))
    assert time.process_time() - begun_s < 2


@given(st.text())
def test_any_text_can_be_read(text):
    parse_load(text)
    parse_load(f"vllm:num_requests_running{text}")
