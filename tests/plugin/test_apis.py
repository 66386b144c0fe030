"""Whole runs against a server of another stack that speaks as OpenAI, Azure and vLLM do."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import CANARY
from tests.plugin.foreign_apis import API_VERSION, Apis
from tests.raw_server import RawServer

SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> dict:
    first = {"role": "user", "content": prompt}
    reply = await llm.chat([first], max_tokens=50, temperature=0)
    if reply.tool_calls:
        call = reply.tool_calls[0]
        asked = {"id": call.call_id, "type": "function",
                 "function": {"name": call.name, "arguments": call.arguments}}
        reply = await llm.chat([
            first,
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": call.call_id, "content": call.arguments},
        ], max_tokens=50, temperature=0)
    return {"text": reply.text, "reasoning": reply.reasoning, "tokens": reply.tokens_out}

@pytest.mark.parametrize("prompt", ["say one two", "think yes", "call read"])
def test_answer(answer, prompt):
    expected = {"say one two": "onetwo", "think yes": "yes", "call read": 'call_1: {"a": 1}'}
    assert answer["text"].replace(" ", "") == expected[prompt].replace(" ", "")
    assert answer["reasoning"] == ("Let me see." if prompt == "think yes" else None)
    assert answer["tokens"] == 7
"""
N_REQUESTS = 4


@pytest.fixture
def api():
    apis = Apis(f"{CANARY}-0")
    with RawServer(apis.answer) as server:
        yield SimpleNamespace(url=server.url, seen=apis.seen)


def write_pool(project, api: str, url: str, provider: str = "", model: str = "") -> None:
    keys = '[{ name = "key0", env = "TEST_KEY_0" }]'
    project.pytester.path.joinpath("pool.toml").write_text(
        f'schema = 1\n[[provider]]\nname = "p"\napi = "{api}"\nbase_url = "{url}"\n'
        f"keys = {keys}\nper_key = {{ workers = 4 }}\ntimeout_s = 20\n{provider}\n"
        f'[[provider.model]]\nname = "m"\n{model}\n'
    )


def suite(project, body: str) -> None:
    project.pytester.path.joinpath("test_suite.py").write_text(body)


def check_no_key(project, result) -> None:
    key = f"{CANARY}-0"
    assert key not in result.stdout.str() + result.stderr.str()
    for path in project.pytester.path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if path.suffix == ".parquet":
                content += repr(pq.read_table(path).to_pydict()).encode()
            assert key.encode() not in content, path


def times(project) -> list[tuple[float | None, float]]:
    """Seconds from sending to the first token and to the end, of each attempt."""
    return [
        (
            None if row["t_first_token_s"] is None else row["t_first_token_s"] - row["t_send_s"],
            row["t_end_s"] - row["t_send_s"],
        )
        for row in project.rows("attempts")
    ]


@pytest.mark.parametrize("streams", [False, True])
def test_openai_run(project, api, streams):
    write_pool(project, "openai", f"{api.url}/v1", "stream = true" if streams else "")
    suite(project, SUITE)
    result = project.run("-n0")
    assert result.ret == 0
    assert len(api.seen) == N_REQUESTS
    for seen in api.seen:
        assert (seen.path, seen.query) == ("/v1/chat/completions", {})
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["accept-encoding"] == ("identity" if streams else "gzip, deflate")
        del seen.body["messages"]
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        own = {"model": "m", "max_tokens": 50, "temperature": 0}
        assert seen.body == own | (streamed if streams else {})
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 3
    assert {row["tokens_in"] for row in project.rows("attempts")} == {11}
    for first_s, whole_s in times(project):
        assert (first_s is not None) == streams
        assert first_s is None or 0 < first_s < whole_s
    said = f"first token of {N_REQUESTS} streams after p50 "
    assert (said in project.report.str()) == streams
    said = [row["content"] for row in project.rows("transcripts") if row["role"] == "assistant"]
    assert "onetwo" in said
    check_no_key(project, result)


@pytest.mark.parametrize("streams", [False, True])
def test_azure_run(project, api, streams):
    write_pool(
        project,
        "azure-openai",
        api.url,
        f'api_version = "{API_VERSION}"\nstream = {str(streams).lower()}\n'
        'parameters = { max_tokens = "max_completion_tokens" }',
        'instances = ["m-1", "m-2", "gone"]\nparameters = { temperature = false }',
    )
    suite(project, SUITE)
    result = project.run("-n0")
    assert result.ret == 0
    found = [seen for seen in api.seen if "/gone/" not in seen.path]
    assert len(found) == N_REQUESTS
    for seen in api.seen:
        _, _, deployments, name, *end = seen.path.split("/")
        assert (deployments, end) == ("deployments", ["chat", "completions"])
        assert name in {"m-1", "m-2", "gone"}
        assert seen.query == {"api-version": API_VERSION}
        assert seen.headers["api-key"] == f"{CANARY}-0"
        assert "authorization" not in seen.headers
        del seen.body["messages"]
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        assert seen.body == {"max_completion_tokens": 50} | (streamed if streams else {})
    # A deployment that is not there costs its request no case.
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 3
    refused = [row for row in project.rows("attempts") if row["instance"] == "gone"]
    assert {(row["status"], row["outcome"]) for row in refused} <= {(404, "not_found")}
    effective = {one.name: one.value for one in read_manifest(project.directory).effective}
    assert effective["p/m parameter max_tokens"] == "max_completion_tokens"
    assert effective["p/m parameter temperature"] == "not sent"
    check_no_key(project, result)


def test_vllm_run_with_its_own_parameters(project, api, monkeypatch):
    monkeypatch.delenv("TEST_KEY_0")
    write_pool(
        project,
        "openai",
        f"{api.url}/vllm/v1",
        f'stream = true\nmetrics_url = "{api.url}/metrics"',
        'api_name = "Qwen/Qwen2.5-7B-Instruct"',
    )
    pool = project.pytester.path / "pool.toml"
    pool.write_text(pool.read_text().replace(', env = "TEST_KEY_0"', ""))
    suite(
        project,
        """
from pytest_ultrapar import prefetch
@prefetch
async def answer(llm) -> tuple[str, str | None]:
    reply = await llm.chat(
        [{"role": "user", "content": "think no"}], top_k=1, guided_choice=["yes", "no"],
        chat_template_kwargs={"enable_thinking": True},
    )
    return reply.text, reply.reasoning

def test_answer(answer):
    assert tuple(answer) == ("no", "Let me see.")
""",
    )
    result = project.run("-n0")
    assert result.ret == 0
    (seen,) = api.seen
    assert seen.body["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert seen.body["top_k"] == 1
    assert seen.body["guided_choice"] == ["yes", "no"]
    assert seen.body["chat_template_kwargs"] == {"enable_thinking": True}
    ((first_s, whole_s),) = times(project)
    assert 0 < first_s < whole_s
