"""`ultrapar gateway -- COMMAND`: the command's environment, and how both end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.cli import main
from tests.engine.test_gateway_command import (
    POOL,
    body,
    said_of_a_gateway_that_is_ended_at_once,
    serve,
    session,
)

PRICES = "price_per_mtok_in = 10.0\nprice_per_mtok_out = 20.0\n"
PRICED = POOL.replace('persona = "echo"\n', f'persona = "echo"\n{PRICES}')
ASKS = """
import json, os, sys, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
for n, label in enumerate(["first", "second", "second", "second"]):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"word {n}"}]
    headers = {"authorization": f"Bearer {key}", "x-ultrapar-label": label, "user-agent": "Own/1"}
    body = {"model": "other", "messages": said, "stream": n >= 2}
    if n == 3:
        body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(f"{base}/chat/completions", json.dumps(body).encode(), headers)
    print(urllib.request.urlopen(request).read().decode())
sys.exit(7)
"""


def write_pool(folder: Path, pool: str = POOL) -> None:
    folder.joinpath("pool.toml").write_text(pool, encoding="utf-8")


def command(*words: str) -> list[str]:
    start = [sys.executable, "-m", "pytest_ultrapar.cli", "gateway", "--pool", "pool.toml"]
    return [*start, "--", *words]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False)


def results(folder: Path) -> list[dict[str, object]]:
    return pq.read_table(folder / ".ultrapar" / "latest" / "results.parquet").to_pylist()


@pytest.mark.slow
def test_command_sends_requests_and_its_exit_code_and_clients_are_reported(tmp_path):
    write_pool(tmp_path, PRICED)
    done = run(tmp_path, sys.executable, "-c", ASKS)
    assert done.returncode == 7
    assert "echo: word 0" in done.stdout
    # A stream's usage is in the tables, and is passed on to a client that asked for it.
    n_told = [part.count('"usage":{') for part in done.stdout.split("[DONE]")]
    assert n_told == [2, 1, 0]
    assert "ultrapar" not in done.stdout
    assert "4 cases: 4 solved" in done.stderr
    assert "no request through the gateway exceeded a limit" in " ".join(done.stderr.split())
    assert "cost by label: second 0.000" in done.stderr
    rows = results(tmp_path)
    assert [row["param.label"] for row in rows] == ["first", *["second"] * 3]
    assert {(row["param.client"], row["param.path"]) for row in rows} == {
        ("Own/1", "/chat/completions")
    }
    assert [row["param.prompt"] for row in rows] == [f"word {n}" for n in range(4)]
    assert rows[3]["cost"] == rows[2]["cost"] == rows[1]["cost"] > 0
    shown = [sys.executable, "-m", "pytest_ultrapar.cli", "show", "latest", "m-second"]
    assert (
        b"other-second-1"
        in subprocess.run(shown[:-1], cwd=tmp_path, capture_output=True, check=True).stdout
    )


@pytest.mark.slow
def test_streams_use_the_budget_in_the_same_way_as_whole_answers(tmp_path):
    """Without usage, each would count at its maximum, and few would be sent."""
    write_pool(tmp_path, PRICED.replace("[[provider]]", "[pool]\nbudget = 0.05\n[[provider]]", 1))

    async def harness(url):
        async with session(url) as client:
            asked = [
                client.post("/chat/completions", json=body(n, model="other", stream=True))
                for n in range(40)
            ]
            return await asyncio.gather(*asked)

    with serve(tmp_path, pool=(tmp_path / "pool.toml").read_text(encoding="utf-8")) as served:
        answers = asyncio.run(harness(served.url))
        said = served.end()
    assert {one.status_code for one in answers} == {200}
    assert "40 cases: 40 solved" in said
    assert "is unknown" not in said
    costs = [row["cost"] for row in results(tmp_path)]
    assert all(cost > 0 for cost in costs)
    assert sum(costs) < 0.05


@pytest.mark.slow
def test_waiting_requests_get_an_error_when_the_budget_runs_out(tmp_path):
    """The first requests leave too little: no other is sent, and their clients get an error."""
    pool = PRICED.replace("[[provider]]", "[pool]\nbudget = 0.003\n[[provider]]", 1)

    async def harness(url):
        async with session(url) as client:
            asked = [
                client.post("/chat/completions", json=body(n, model="other", max_tokens=30))
                for n in range(40)
            ]
            return await asyncio.gather(*asked)

    with serve(tmp_path, pool=pool) as served:
        answers = asyncio.run(harness(served.url))
        served.end()
    assert {one.status_code for one in answers} == {200, 502}
    refused = next(one for one in answers if one.status_code == 502)
    said = refused.json()["error"]["message"]
    assert "the budget of pool (0.00300 USD, " in said
    assert " left) does not cover " in said
    assert sum(row["cost"] for row in results(tmp_path)) <= 0.003


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code"), [("kill -9 $$", 128 + signal.SIGKILL), ("kill -2 $$", 128 + signal.SIGINT)]
)
def test_command_ended_by_a_signal_has_a_shells_code_and_missing_requests_are_reported(
    tmp_path, script, code
):
    write_pool(tmp_path)
    done = run(tmp_path, "sh", "-c", script)
    assert done.returncode == code
    assert "the gateway received no request: sh and its processes do not read" in done.stderr
    assert (tmp_path / ".ultrapar" / "latest" / "results.parquet").exists()


@pytest.mark.slow
def test_file_that_is_not_executable_gives_exit_code_126_and_tables_are_written(tmp_path):
    write_pool(tmp_path)
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7f no program")
    tool.chmod(0o755)
    done = run(tmp_path, str(tool))
    assert done.returncode == 126
    assert f"ultrapar gateway: error: {tool}: Exec format error" in done.stderr


@pytest.mark.parametrize(("name", "code"), [("no-such-command", 127), ("./pool.toml", 126)])
def test_command_that_cannot_be_run_starts_nothing(tmp_path, monkeypatch, capsys, name, code):
    monkeypatch.chdir(tmp_path)
    write_pool(tmp_path)
    assert main(["gateway", "--pool", "pool.toml", "--", name, "--model", "m"]) == code
    said = capsys.readouterr()
    assert said.err.startswith(f"ultrapar gateway: error: {name}: ")
    assert (len(said.err.splitlines()), said.out) == (1, "")
    assert not tmp_path.joinpath(".ultrapar").exists()


def test_port_in_use_gives_exit_code_4_and_the_command_is_not_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pool(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ["--port", str(taken.getsockname()[1])]
        assert main(["gateway", "--pool", "pool.toml", *port, "--", "touch", "run"]) == 4
    assert "Address already in use" in capsys.readouterr().err
    assert not tmp_path.joinpath("run").exists()


HEEDS = """
import signal, sys, time
def end(number, _):
    print(signal.Signals(number).name, flush=True)
    sys.exit(3)
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, end)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_to_the_command(tmp_path, number):
    write_pool(tmp_path)
    with subprocess.Popen(
        command(sys.executable, "-c", HEEDS),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Otherwise a terminal of the tests might become its own.
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
    assert (out, process.returncode) == (f"{number.name}\n", 3)
    assert "results in " in said


@pytest.mark.slow
def test_ctrl_c_of_a_terminal_reaches_the_command_once(tmp_path):
    """The terminal sends it to both; a second one would interrupt the command's end."""
    write_pool(tmp_path)
    script = HEEDS.replace("sys.exit(3)", "seen.append(number)").replace(
        "time.sleep(60)", "time.sleep(1.5)\nprint(len(seen))\nsys.exit(3)"
    )
    script = "seen = []\n" + script
    parent, child = os.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(parent)
        for stream in range(3):
            os.dup2(child, stream)
        terminal = os.open(os.ttyname(child), os.O_RDWR)
        os.close(terminal)
        os.chdir(tmp_path)
        os.execv(sys.executable, command(sys.executable, "-c", script))
    os.close(child)
    said = b""
    while b"ready" not in said:
        said += os.read(parent, 1000)
    os.write(parent, b"\x03")
    with pytest.raises(OSError, match="Input/output error"):  # noqa: PT012 - raises after some output
        while True:
            said += os.read(parent, 1000)
    os.close(parent)
    _, status = os.waitpid(pid, 0)
    assert b"SIGINT\r\n" in said
    assert b"\r\n1\r\n" in said
    assert os.waitstatus_to_exitcode(status) == 3


SLOW = POOL.replace("workers = 5, qps = 20", "workers = 1").replace("0.05", "2.0")
LEFT = """
import json, os, pathlib, sys, threading, urllib.error, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def ask(n):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"word {n}"}]})
    headers = {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{base}/chat/completions", body.encode(), headers)
    try:
        status = urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        status = error.status
    print(f" {status} ", flush=True)  # the line feed is written separately
asking = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
for one in asking:
    one.start()
"""
STARTED = "until grep -q started .ultrapar/latest/journal/*; do sleep 0.1; done; sleep 0.5"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exit 3", "wait; exit 3", "kill -9 $!; exit 3"])
def test_requests_of_processes_that_the_command_left_behind_are_counted(tmp_path, end):
    """Sent requests are answered first, and waiting ones are refused; dead processes send none."""
    write_pool(tmp_path, SLOW)
    tmp_path.joinpath("left.py").write_text(LEFT, encoding="utf-8")
    done = run(tmp_path, "sh", "-c", f"{sys.executable} left.py & {STARTED}; {end}")
    assert done.returncode == 3
    said = "after sh had ended, 2 requests that were waiting or arrived later got 503"
    assert (said in " ".join(done.stderr.split())) == (end == "exit 3"), done.stderr
    answers = {"exit 3": [200, 503, 503], "wait; exit 3": [200] * 3}.get(end, [])
    assert sorted(map(int, done.stdout.split())) == answers
    outcomes = [row["outcome"] for row in results(tmp_path)]
    assert outcomes.count("solved") == answers.count(200)


@pytest.mark.slow
def test_ctrl_c_finishes_sent_requests_and_refuses_waiting_ones(tmp_path):
    async def harness(served):
        async with session(served.url) as client:
            asked = [
                asyncio.create_task(client.post("/chat/completions", json=body(n, **more)))
                for n, more in enumerate([{}, {}, {"stream": True}])
            ]
            directory = tmp_path / ".ultrapar" / "latest"
            while b'"type":"started"' not in b"".join(  # noqa: ASYNC110 - another process changes it
                one.read_bytes() for one in directory.glob("journal/*")
            ):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            served.process.send_signal(signal.SIGINT)
            return await asyncio.gather(*asked)

    with serve(tmp_path, pool=SLOW) as served:
        answers = asyncio.run(harness(served))
        said, _ = served.process.communicate(timeout=60)
    answers.sort(key=lambda one: one.status_code)
    assert [one.status_code for one in answers] == [200, 503, 503], [one.text for one in answers]
    assert answers[1].headers["retry-after"] == "5"
    assert answers[1].json()["error"]["message"] == "the gateway is shutting down"
    assert "waiting for answers to requests in flight; press Ctrl-C again to end now" in said
    assert served.process.returncode == 0
    assert "1 solved" in said


@pytest.mark.slow  # the gateway counts a second Ctrl-C only a second later
def test_second_ctrl_c_ends_requests_in_flight(tmp_path):
    async def harness(served):
        async with session(served.url) as client:
            asked = asyncio.create_task(client.post("/chat/completions", json=body(0)))
            await asyncio.sleep(0.5)
            served.process.send_signal(signal.SIGINT)
            await asyncio.sleep(1.3)
            served.process.send_signal(signal.SIGINT)
            return await asked

    with serve(tmp_path, pool=SLOW.replace("2.0", "600.0")) as served:
        answer = asyncio.run(harness(served))
        served.process.communicate(timeout=60)
    assert answer.status_code in {502, 503}
    assert served.process.returncode == 0


ANTHROPIC = """
schema = 1
[[provider]]
name = "claude"
api = "anthropic"
base_url = "http://127.0.0.1:9"
keys = [{ name = "key0", env = "OWN_KEY" }]
per_key = { workers = 1 }
[[provider.model]]
name = "m"
instances = ["m-1"]
"""


def test_pool_of_anthropic_sets_anthropics_variables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OWN_KEY", "sk-own-canary-1234")
    write_pool(tmp_path, ANTHROPIC)
    said = said_of_a_gateway_that_is_ended_at_once(monkeypatch)
    names = [line.partition("=")[0] for line in said if "=" in line and " " not in line]
    assert names == ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"]
    (address,) = [line for line in said if line.startswith("ANTHROPIC_BASE_URL=")]
    assert not address.endswith("/v1")
