"""A whole run on vLLM, with parameters that only vLLM supports."""

from __future__ import annotations

from tests.plugin.conftest import cases
from tests.raw_server import RawServer, json_response

SUITE = """
@prefetch
async def answer(llm) -> tuple[str, str | None]:
    reply = await llm.chat(
        [{"role": "user", "content": "say"}], top_k=1, guided_choice=["yes", "no"],
        chat_template_kwargs={"enable_thinking": True},
    )
    return reply.text, reply.reasoning

def test_answer(answer):
    assert tuple(answer) == ("no", "Let me see.")
"""


def test_vllm_run_with_its_own_parameters(project, monkeypatch):
    monkeypatch.delenv("TEST_KEY_0")
    message = {"role": "assistant", "reasoning": "Let me see.", "content": "no"}
    answer = json_response({"choices": [{"message": message, "finish_reason": "stop"}]})
    with RawServer(lambda peer, _: peer.send(answer)) as server:
        more = f'metrics_url = "{server.url}/metrics"'
        project.write_pool(base_url=server.base_url, provider=more, model='api_name = "Qwen/Qwen2"')
        pool = project.pytester.path / "pool.toml"
        text = pool.read_text().replace(', env = "TEST_KEY_0"', "")
        pool.write_text(text.replace('instances = ["m"]', ""))
        project.suite(SUITE)
        assert project.run("-n0").ret == 0
    (request,) = server.requests
    body = request.json()
    assert body.pop("messages")
    assert body == {
        "model": "Qwen/Qwen2",
        "top_k": 1,
        "guided_choice": ["yes", "no"],
        "chat_template_kwargs": {"enable_thinking": True},
    }


def test_metrics_url_without_a_known_metric_is_reported_once(project):
    adaptive = f'rate_mode = "adaptive"\nmetrics_url = "{project.server.url}/metrics"'
    project.write_pool(provider=adaptive, keys=2)
    project.suite(cases(3))
    assert project.run("-n0").ret == 0
    assert (
        project.report.str().count(
            "metrics_url of p/m had no effect: the URL returned no known metric"
        )
        == 1
    )
