"""Outcomes of cases that send requests with their own client on `llm.httpx_client()`."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CANARY

pytestmark = pytest.mark.slow

SUITE = """
import httpx

class WrappedError(Exception):
    "The exception of an SDK for all failures."

async def ask(llm, prompt, **fields):
    body = {"model": llm.model, "messages": [{"role": "user", "content": prompt}], **fields}
    client = llm.httpx_client(httpx)
    try:
        answer = await client.post("https://api.openai.com/v1/chat/completions", json=body)
        answer.raise_for_status()
    except Exception as error:
        raise WrappedError("connection error") from error
    return answer.json()["choices"][0]["message"]["content"]

@prefetch
async def asked(llm, prompt) -> str:
    return await ask(llm, prompt)

@prefetch
async def stubborn(llm, prompt) -> str:
    for _ in range(3):
        try:
            return await ask(llm, prompt)
        except WrappedError:
            pass
    return "handled"

@prefetch
async def strange(llm) -> str:
    return await ask(llm, "say yes", model="another")

@prefetch
async def keyed(llm) -> str:
    client = llm.httpx_client(httpx)
    headers = {"authorization": "Bearer OWN"}
    await client.post("https://api.openai.com/v1/chat/completions", json={}, headers=headers)
    return ""

@pytest.mark.parametrize("prompt", PROMPTS)
def test_asked(asked, prompt):
    assert asked == "yes"

@pytest.mark.parametrize("prompt", ["status 500 each time", "status 400 again"])
def test_stubborn(stubborn, prompt):
    assert stubborn == "handled"

def test_strange(strange): pass
def test_keyed(keyed): pass
"""
EXPECTED = {
    "say yes": ("solved", None),
    "once 429 yes": ("solved", None),
    "once 500 yes": ("solved", None),
    "context": ("unsolved", "context_length"),
    "filter": ("unsolved", "content_filter"),
    "status 400": ("error", "bad_request"),
}


def test_outcomes_equal_the_outcomes_of_chat(project):
    project.suite(SUITE.replace("PROMPTS", repr(list(EXPECTED))).replace("OWN", f"{CANARY}-own"))
    done = project.run("-n0")
    rows = {row["nodeid"].split("::")[-1]: row for row in project.rows()}

    found = {
        prompt: next(
            (row["outcome"], row["kind"])
            for name, row in rows.items()
            if name.startswith("test_asked") and f"-{prompt}-" in name
        )
        for prompt in EXPECTED
    }
    assert found == EXPECTED
    # The agent may handle a failure, unless there was no answer.
    handled, lost = (
        next(row for name, row in rows.items() if f"-{prompt}-" in name)
        for prompt in ("status 400 again", "status 500 each time")
    )
    assert (handled["outcome"], handled["n_attempts"]) == ("solved", 3)
    assert (lost["outcome"], lost["kind"], lost["n_attempts"]) == ("infra", "overload", 3)
    for name, sentence in (("test_strange", "'another'"), ("test_keyed", "its own key")):
        row = next(row for nodeid, row in rows.items() if nodeid.startswith(name))
        assert (row["outcome"], row["n_attempts"]) == ("error", 0)
        assert sentence in done.stdout.str()
    shown = done.stdout.str() + done.stderr.str()
    kept = b"".join(path.read_bytes() for path in project.directory.rglob("*") if path.is_file())
    assert CANARY not in shown
    assert CANARY.encode() not in kept.replace(b"CANARY", b"")
