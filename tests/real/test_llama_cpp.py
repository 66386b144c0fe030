"""Runs on llama.cpp's server: outcomes, rows, limits, and no lost cases."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pyarrow.parquet as pq
import pytest

from tests.real import ROOT
from tests.real.llama_server import NEEDS, LlamaServer, binary, model
from tests.running import run_pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(binary() is None or model() is None, reason=NEEDS),
]

POOL = """
schema = 1
[[provider]]
name = "llama"
api = "openai"
base_url = "http://127.0.0.1:{port}/v1"
keys = [{{ name = "none" }}]
timeout_s = 120
[[provider.model]]
name = "smollm2"
per_instance = {{ workers = {seats} }}
max_tokens = 8
{more}
"""
SUITE = """
import json
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}])).text
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def lab(tmp_path):
    """A function that starts servers and writes their pool; the servers end with the test."""
    with ExitStack() as stack:

        def make(*servers, more=""):
            ports = [server.port for server in servers]
            listed = f"ports = {ports}" if len(ports) > 1 else ""
            (tmp_path / "pool.toml").write_text(
                POOL.format(port=ports[0], seats=servers[0].seats, more=f"{more}\n{listed}")
            )
            for server in servers:
                stack.callback(server.stop)

        yield make


@pytest.fixture
def server(lab, tmp_path):
    one = LlamaServer(free_port(), tmp_path)
    lab(one)
    one.start()
    return one


def rows(folder, table="results"):
    return pq.read_table(folder / ".ultrapar" / "latest" / f"{table}.parquet").to_pylist()


def kinds(folder):
    return Counter((row["outcome"], row["kind"]) for row in rows(folder))


def play(folder, body, *options, code=0):
    (folder / "test_suite.py").write_text(SUITE + body)
    return run_pytest(folder, *options, code=code)


TEN = """
@pytest.mark.parametrize("prompt", [f"Say the number {n}." for n in range(10)])
def test_it(answer, prompt, grade): grade(isinstance(answer, str))
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_run_that_starts_with_its_server_waits_until_the_model_is_loaded(server, tmp_path, workers):
    play(tmp_path, TEN, workers)
    assert kinds(tmp_path) == {("solved", None): 10}
    asked = [one for one in rows(tmp_path, "attempts") if one["outcome"] == "ok"]
    assert len(asked) == 10
    assert all(one["tokens_in"] and one["tokens_out"] for one in asked)
    assert server.answered() == 10


def test_streams_tools_and_schemas_work_with_the_openai_sdk(server, tmp_path):
    server.wait_until_ready()
    play(
        tmp_path,
        """
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
    "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
    "additionalProperties": False}}}
SAID = [{"role": "user", "content": "Look up the weather."}]

@prefetch
async def asked(llm, way) -> str:
    create = llm.openai().chat.completions.create
    if way == "stream":
        stream = await create(model="smollm2", messages=SAID, stream=True, max_tokens=16)
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
    more = {"response_format": SCHEMA}
    if way == "tool":
        more = {"tools": [TOOL], "tool_choice": "required"}
    done = await create(model="smollm2", messages=SAID, max_tokens=60, **more)
    said = done.choices[0].message
    if way == "schema":
        return str(list(json.loads(said.content)))
    # Such a small model may answer with text instead.
    return said.tool_calls[0].function.name if said.tool_calls else "look_up"

@pytest.mark.parametrize("way", ["stream", "tool", "schema"])
def test_it(asked, way, grade):
    grade(bool(asked) if way == "stream" else asked == ("look_up" if way == "tool" else "['yes']"))
""",
        "-n0",
    )
    assert kinds(tmp_path) == {("solved", None): 3}


def test_prompt_that_overflows_the_context_is_unsolved_but_not_a_failure(server, tmp_path):
    server.wait_until_ready()
    body = """
@pytest.mark.parametrize("prompt", ["word " * 5000, "Say yes."], ids=["long", "short"])
def test_it(answer, prompt, grade): grade(True)
"""
    play(tmp_path, body, "-n0")
    assert kinds(tmp_path) == {("unsolved", "context_length"): 1, ("solved", None): 1}


def test_server_that_is_killed_during_a_run_and_restarted_loses_nothing(server, tmp_path):
    server.wait_until_ready()

    def crash():
        while server.answered() < 10:
            time.sleep(0.05)
        server.kill()
        time.sleep(5.0)
        server.start()

    thread = threading.Thread(target=crash)
    thread.start()
    body = TEN.replace("range(10)", "range(40)")
    play(tmp_path, body, "-n2")
    thread.join()
    assert kinds(tmp_path) == {("solved", None): 40}
    assert len(rows(tmp_path)) == 40


def test_four_servers_share_the_cases_within_their_seats(lab, tmp_path):
    servers = [LlamaServer(free_port(), tmp_path, seats=2) for _ in range(4)]
    lab(*servers)
    for one in servers:
        one.start()
    play(tmp_path, TEN.replace("range(10)", "range(40)"), "-n2")
    assert kinds(tmp_path) == {("solved", None): 40}
    asked = rows(tmp_path, "attempts")
    ok = Counter(one["instance"] for one in asked if one["outcome"] == "ok")
    assert sum(ok.values()) == 40
    assert len(ok) == 4
    for name in ok:
        its = [one for one in asked if one["instance"] == name]
        for one in its:
            at_once = [o for o in its if o["t_send_s"] <= one["t_send_s"] < o["t_end_s"]]
            assert len(at_once) <= 2


def test_a_part_of_a_phase_of_the_benchmark_runs(server, tmp_path):
    server.wait_until_ready()
    (tmp_path / "pool.toml").write_text(
        (tmp_path / "pool.toml").read_text().replace("max_tokens = 8", "max_tokens = 64")
    )
    run_pytest(
        tmp_path,
        str(ROOT / "bench_suites" / "phase51"),
        *("-n0", "--ultrapar-repeats=1", "--task-type", "simple_task", "--ultrapar-coverage=0"),
        f"--ultrapar-out={tmp_path / '.ultrapar' / 'latest'}",
        code=None,
    )
    found = kinds(tmp_path)
    assert sum(found.values()) > 0
    assert not [kind for kind in found if kind[0] in {"infra", "error"}]
