"""vLLM's queue out of Prometheus text."""

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


def test_load_is_summed_over_the_models_engines():
    assert parse_load(TEXT, model="Qwen/Qwen2.5-7B-Instruct") == ServerLoad(15.0, 4.0)


def test_load_of_all_models_is_the_servers():
    assert parse_load(TEXT) == ServerLoad(115.0, 4.0)


def test_model_that_is_not_there_has_no_load():
    assert parse_load(TEXT, model="Qwen") == ServerLoad(None, None)
    assert parse_load("", model="Qwen") == ServerLoad(None, None)


def test_sample_needs_no_labels_and_labels_may_be_escaped():
    assert parse_load("vllm:num_requests_running 2\n") == ServerLoad(2.0, None)
    line = r'vllm:num_requests_waiting{a="}",model_name="a\"b\\c\nd",} 1'
    assert parse_load(line, model='a"b\\c\nd') == ServerLoad(None, 1.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "many", "", "1 2 3"])
def test_value_that_is_no_count_is_not_known(value):
    assert parse_load(f"vllm:num_requests_running {value}") == ServerLoad(None, None)


def test_long_lines_and_texts_are_bounded():
    line = f'vllm:num_requests_running{{a="{"x" * 5000}"}} 1\n'
    assert parse_load(line) == ServerLoad(None, None)
    assert parse_load("#\n" * 3_000_000 + "vllm:num_requests_running 1") == ServerLoad(None, None)
    assert parse_load("vllm:num_requests_running{" + '"' * 4000) == ServerLoad(None, None)


@given(st.text(), st.text())
def test_any_text_can_be_read(text, model):
    parse_load(text, model=model)
    parse_load(f"vllm:num_requests_running{text}", model=model)
