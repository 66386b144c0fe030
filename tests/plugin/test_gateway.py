"""Clients in other processes through their episode's gateway, judged by the server's log."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import read_server_log
from tests.running import run_pytest
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).with_name("gateway_clients.py")
CANARY = "sk-canary-93d7a1c4"
TOKEN = re.compile(rb"(?<![-\w])ultrapar-[-\w]{32}")
POOL = pool_text("workers = 5, qps = 10", 0.2, sigma=0.5, model='instances = ["m-at-theirs"]')
SUITE = """
import asyncio
import os

import pytest

from pytest_ultrapar import prefetch

@prefetch
async def said(llm, command) -> str:
    own = {"OPENAI_BASE_URL": llm.base_url, "OPENAI_API_KEY": llm.api_key}
    process = await asyncio.create_subprocess_exec(
        *command.split(), env={**os.environ, **own}, stdout=-1, stderr=-1
    )
    out, error = await process.communicate()
    if process.returncode:
        raise RuntimeError(error.decode()[-500:])
    return out.decode()

@pytest.mark.parametrize("command", COMMANDS)
def test_client(said, command):
    if not command.endswith("error"):
        assert "echo" in said or "look_up" in said or "word" in said
    else:
        assert "asks for the model 'other'" in said
"""


def run(folder: Path, suite: str, pool: str = POOL) -> subprocess.CompletedProcess[str]:
    folder.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    folder.joinpath("test_suite.py").write_text(suite, encoding="utf-8")
    return run_pytest(folder, "-W", "error", "-n0", "-q", code=None, OPENAI_API_KEY=CANARY)


def results(folder: Path) -> list[dict[str, object]]:
    return pq.read_table(folder / ".ultrapar" / "latest" / "results.parquet").to_pylist()


def judge(folder: Path, done: subprocess.CompletedProcess[str], n_requests: int) -> None:
    """Check limits by the server's log, compare it with attempts, and find no key anywhere."""
    directory = folder / ".ultrapar" / "latest"
    log = read_server_log(directory / "simulator.jsonl")
    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 11
    attempts = pq.read_table(directory / "attempts.parquet").to_pylist()
    assert len(attempts) == len(log.requests) == n_requests
    for path in directory.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert CANARY.encode() not in content, path
        assert TOKEN.search(content) is None, path
    assert CANARY not in done.stdout + done.stderr


def test_example_of_the_page_runs(tmp_path):
    page = (ROOT / "docs" / "how-to" / "gateway.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    done = run(tmp_path, example)
    assert done.returncode == 0, done.stdout
    judge(tmp_path, done, 1)


WRONG = """
import asyncio, os, sys
import pytest
from pytest_ultrapar import prefetch

SCRIPT = '''
import os, urllib.request
body = b'{"model": "other", "messages": []}'
headers = {"authorization": "Bearer " + os.environ["KEY"]}
urllib.request.urlopen(
    urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)
)
'''

@prefetch
async def said(llm) -> str:
    env = {**os.environ, "URL": llm.base_url, "KEY": llm.api_key}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, env=env, stderr=-1)
    await process.communicate()
    if process.returncode:
        raise RuntimeError("the script failed")
    return ""

def test_it(said):
    pass
"""


def test_error_of_another_processs_request_is_the_reason_of_the_case(tmp_path):
    run(tmp_path, WRONG)
    (row,) = results(tmp_path)
    assert (row["outcome"], row["kind"]) == ("error", "bad_request")
    assert "asks for the model 'other'" in str(row["error"])


def ask_in_each_way(folder: Path, python: str, clients: Sequence[str]) -> None:
    """Run clients in five ways each, and check the results."""
    commands = [
        f"{python} {CLIENTS} {client} {way}"
        for client in clients
        for way in ("plain", "stream", "tools", "structured", "error")
    ]
    done = run(folder, SUITE.replace("COMMANDS", repr(commands)))
    assert done.returncode == 0, done.stdout
    assert {row["outcome"] for row in results(folder)} == {"solved"}
    # The error of the fifth request is found before it is sent.
    judge(folder, done, 4 * len(clients))


def test_client_in_another_language_respects_the_limits_in_each_way(tmp_path):
    """The clients of `python -m tests.clients` take minutes to install."""
    ask_in_each_way(tmp_path, sys.executable, ["node"])


LEFT = """
import asyncio, os, pathlib, sys
from pytest_ultrapar import prefetch

SCRIPT = '''
import os, urllib.request
body = b'{"model": "m", "messages": [{"role": "user", "content": "word"}]}'
headers = {"authorization": "Bearer " + os.environ["KEY"], "content-type": "application/json"}
urllib.request.urlopen(
    urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)
)
'''

@prefetch
async def said(llm) -> str:
    env = {**os.environ, "URL": llm.base_url, "KEY": llm.api_key}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, env=env, stderr=-1)
    log = pathlib.Path(".ultrapar", "latest", "simulator.jsonl")
    while not (log.exists() and b'"arrival"' in log.read_bytes()):
        await asyncio.sleep(0.02)
    return "left"

def test_it(said):
    assert said == "left"
"""


def test_request_of_another_process_ends_with_its_episode(tmp_path):
    slow = pool_text(latency_s=500)
    run(tmp_path, LEFT, slow)
    assert [row["outcome"] for row in results(tmp_path)] == ["solved"]
    directory = tmp_path / ".ultrapar" / "latest"
    (request,) = read_server_log(directory / "simulator.jsonl").requests
    (attempt,) = pq.read_table(directory / "attempts.parquet").to_pylist()
    assert attempt["outcome"] == "cancelled"
    # The answer would take 500 s.
    assert request.t_end_s - request.t_arrival_s < 60
