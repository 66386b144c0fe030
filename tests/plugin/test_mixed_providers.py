"""A suite on providers of all APIs: transcripts have one form, and limits hold for each provider.

The server answers like the golden files, so its requests must have each API's own form.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.plugin.conftest import CANARY
from tests.raw_server import Peer, RawServer, Request, json_response, response
from tests.unit.test_golden_apis import CHAT, golden

pytestmark = pytest.mark.slow

SUITE = """
import json
import pytest
from pytest_ultrapar import prefetch

CHAT = json.loads(%r)

@prefetch
async def said(llm) -> list[str]:
    first, then = CHAT["call"], CHAT["results"]
    reply = await llm.chat(first["messages"], **first["parameters"])
    messages = [*first["messages"], reply.message]
    for call in reply.tool_calls:
        celsius = {"Oslo": "3", "Lima": "19"}[json.loads(call.arguments)["city"]]
        messages.append({"role": "tool", "tool_call_id": call.call_id, "content": celsius})
    messages.append(then["messages"][-1])
    last = await llm.chat(messages, max_tokens=200)
    return [reply.text, last.text]

def test_said(said):
    assert said == ["I look it up.", "Lima"]
"""
SECRETS = {
    "openai": ("authorization", "Bearer {}"),
    "azure-openai": ("api-key", "{}"),
    "openai-responses": ("authorization", "Bearer {}"),
    "anthropic": ("x-api-key", "{}"),
    "gemini": ("x-goog-api-key", "{}"),
}


def api_of(path: str) -> str:
    ends = {
        "/v1/chat/completions": "openai",
        "/openai/deployments/m-1/chat/completions": "azure-openai",
        "/v1/responses": "openai-responses",
        "/v1/messages": "anthropic",
        "/v1beta/models/m-1:generateContent": "gemini",
    }
    return ends[path]


@pytest.fixture
def providers():
    """A server of all APIs: requests by API, and refusals that are still to be sent."""
    seen: list[tuple[str, dict[str, object]]] = []
    refusals: dict[str, bytes] = {}

    async def answer(peer: Peer, request: Request) -> None:
        api = api_of(request.path)
        header, form = SECRETS[api]
        assert request.headers[header] == form.format(f"{CANARY}-0")
        if api in refusals:
            await peer.send(refusals.pop(api))
            return
        body = request.json()
        seen.append((api, body))
        wire = golden(api.replace("azure-openai", "openai"))
        name = "results" if '"call_1"' in json.dumps(body) else "call"
        if not body.get("stream"):
            await peer.send(json_response(wire[name]["answer"]))
            return
        events = b"".join(
            b"data: " + json.dumps(event).encode() + b"\n\n" for event in wire[name]["events"]
        )
        await peer.send(response(events, b"content-type: text/event-stream"))

    with RawServer(answer) as server:
        yield SimpleNamespace(url=server.url, seen=seen, refusals=refusals)


def write_pool(project, url: str, more: str = "") -> None:
    azure = 'api_version = "2024-10-21"\n'
    tables = [
        f'[[provider]]\nname = "{api}"\napi = "{api}"\n'
        f'base_url = "{url}{"/v1" if api in {"openai", "openai-responses"} else ""}"\n'
        f'keys = [{{ name = "key0", env = "TEST_KEY_0", workers = 4 }}]\n'
        f"{azure if api == 'azure-openai' else ''}{more}\n"
        f'[[provider.model]]\nname = "{api}:m"\napi_name = "m-1"\n'
        for api in SECRETS
    ]
    project.pytester.path.joinpath("pool.toml").write_text("schema = 1\n" + "\n".join(tables))


def transcripts(project) -> dict[str, list[dict[str, object]]]:
    """The messages of each model, without the parts that differ between runs or models."""
    model_of = {row["case_id"]: row["model"] for row in project.rows()}
    found: dict[str, list[dict[str, object]]] = {}
    for row in project.rows("transcripts"):
        said = {name: row[name] for name in ("turn", "role", "content")}
        calls = json.loads(row["tool_calls"] or "[]")
        said["calls"] = [(one["name"], json.loads(one["arguments"])) for one in calls]
        found.setdefault(model_of[row["case_id"]], []).append(said)
    return found


@pytest.mark.parametrize("streams", [False, True])
def test_transcripts_have_the_same_form_for_all_apis(project, providers, streams):
    write_pool(project, providers.url, "stream = true" if streams else "")
    project.pytester.path.joinpath("test_suite.py").write_text(SUITE % json.dumps(CHAT))
    result = project.run("-n0")
    assert result.ret == 0, result.stdout.str()
    assert [row["outcome"] for row in project.rows()] == ["solved"] * len(SECRETS)
    found = transcripts(project)
    assert set(found) == {f"{api}:m" for api in SECRETS}
    first = found["openai:m"]
    assert [one["role"] for one in first] == [
        *("user", "assistant", "tool", "tool", "user", "assistant")
    ]
    assert all(said == first for said in found.values())
    attempts = project.rows("attempts")
    assert sorted((row["tokens_in"], row["tokens_out"]) for row in attempts) == sorted(
        [(80, 40), (120, 4)] * len(SECRETS)
    )
    asked = {api for api, body in providers.seen if body.get("stream")}
    # A stream of Gemini has another URL.
    assert asked == ({*SECRETS} - {"gemini"} if streams else set())
    timed = {row["provider"] for row in attempts if row["t_first_token_s"] is not None}
    assert timed == asked
    assert ("time to first token of " in project.report.str()) == streams
    assert f"{CANARY}-0" not in result.stdout.str() + result.stderr.str()


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
TOO_FAST = {
    "code": 429,
    "message": "Quota exceeded.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.1s"}],
}
FAILED = {"id": "resp_1", "status": "failed", "output": [], "error": {"code": "server_error"}}


def test_run_waits_after_refusals_in_the_form_of_each_api(project, providers):
    soon = b"retry-after-ms: 50"
    providers.refusals |= {
        "anthropic": json_response(OVERLOADED, soon, status=529),
        "gemini": json_response({"error": TOO_FAST}, status=429),
        "openai-responses": json_response(FAILED),
    }
    write_pool(project, providers.url)
    project.pytester.path.joinpath("test_suite.py").write_text(SUITE % json.dumps(CHAT))
    result = project.run("-n0")
    assert result.ret == 0, result.stdout.str()
    refused = {
        row["provider"]: (row["status"], row["outcome"], row["retry_after_s"])
        for row in project.rows("attempts")
        if row["outcome"] != "ok"
    }
    assert refused == {
        "anthropic": (529, "rate", 0.05),
        "gemini": (429, "rate", 0.1),
        "openai-responses": (200, "overload", None),
    }
