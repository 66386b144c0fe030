"""`ultrapar gateway`: harnesses that do not know the pool, judged by the server's log."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compact import main as compact
from pytest_ultrapar.cli import main
from pytest_ultrapar.coordinator.gateway import serving
from pytest_ultrapar.testing import read_server_log
from tests.family import family_of, named
from tests.gateway_process import gateway

TOKEN = "canary-7c1f2e90"
POOL = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 5, qps = 20 }
latency = { kind = "fixed", median_s = 0.05 }
[[provider.model]]
name = "m"
instances = ["m-at-theirs"]
persona = "echo"
[[provider.model]]
name = "other"
instances = ["other-at-theirs"]
persona = "echo"
"""


def serve(folder, *options, pool=POOL):
    """A gateway of a pool in a folder."""
    folder.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    return gateway(folder / "pool.toml", *options, GATEWAY_TOKEN=TOKEN)


def said_after_ctrl_c(process) -> str:
    """Its output from a Ctrl-C until its end."""
    for _ in range(40):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            said, _ = process.communicate(timeout=1.3)
            return said
    pytest.fail("the gateway does not end")


def body(n: int, model: str = "m", **more):
    return {"model": model, "messages": [{"role": "user", "content": f"word {n}"}], **more}


async def ask(client, n, **more):
    """Repeat a request until it is answered, as SDKs do."""
    while True:
        answer = await client.post("/chat/completions", json=body(n, **more))
        if answer.status_code != 429:
            return answer
        await asyncio.sleep(float(answer.headers["retry-after"]) / 10)


def session(url, **more):
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60, **more)


@pytest.mark.slow
def test_requests_of_a_harness_are_cases_of_a_run_within_the_limits(tmp_path):
    async def harness(url):
        async with session(url) as client:
            wrong = await client.post("/chat/completions", json=body(0, model="x"))
            assert (wrong.status_code, wrong.json()["error"]["message"]) == (
                400,
                "a request names the model 'x'; the pool has m, other",
            )
            for method, path, says in (
                ("POST", "/chat/completion", "; it serves POST /chat/completions"),
                (
                    "GET",
                    "/files",
                    "a request asks for GET /v1/files, which the pool does not serve; ",
                ),
            ):
                missed = await client.request(method, path, json=body(0))
                assert missed.status_code == 400
                assert says in missed.json()["error"]["message"]
                assert "key0" not in missed.text
            listed = (await client.get("/models")).json()["data"]
            assert [one["id"] for one in listed] == ["m", "other"]
            refused = await client.post("/chat/completions", json=body(31, max_tokens=-1))
            assert refused.status_code == 400
            asked = [ask(client, n, model="other" if n % 2 else "m") for n in range(30)]
            return await asyncio.gather(*asked, ask(client, 30, stream=True))

    with serve(tmp_path) as served:
        *answers, streamed = asyncio.run(harness(served.url))
        said = served.end()
    assert [one.json()["choices"][0]["message"]["content"] for one in answers] == [
        f"echo: word {n}" for n in range(30)
    ]
    assert streamed.text.rstrip().endswith("data: [DONE]")
    assert "32 cases: 31 solved" in said
    assert "latency p50 " in said
    # The test does not control when the requests came.
    for word in ("speed-up", "efficiency", "lower bound", "CLIENT-BOUND", "/s;"):
        assert word not in said
    summary = json.loads((tmp_path / ".ultrapar" / "latest" / "summary.json").read_bytes())
    assert (summary["bound_s"], summary["statistics"]["makespan_s"]) == (None, None)
    directory = tmp_path / ".ultrapar" / "latest"
    log = read_server_log(directory / "simulator.jsonl")
    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 21
    attempts = pq.read_table(directory / "attempts.parquet").to_pylist()
    # The first answer was a 400, so the lane was checked once.
    assert len(attempts) == len(log.requests) - 1 == 32
    for path in directory.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


def _joined(journal: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in journal.iterdir())


@pytest.mark.slow
def test_killed_gateway_has_stored_all_its_answers(tmp_path, capsys):
    async def harness(url, journal):
        async with session(url) as client:
            await asyncio.gather(*(ask(client, n) for n in range(10)))
        while journal().count(b'"type":"grade"') < 10:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)

    directory = tmp_path / ".ultrapar" / "latest"
    with serve(tmp_path) as served:
        journal = partial(_joined, directory / "journal")
        asyncio.run(asyncio.wait_for(harness(served.url, journal), 60))
    assert compact([str(directory)]) == 0
    assert "10 of 10 cases graded" in capsys.readouterr().out


@pytest.mark.slow  # waits for its clients
def test_clients_that_are_sent_away_are_all_served_exactly_once(tmp_path):
    async def harness(url):
        limits = httpx.Limits(max_connections=100)
        async with session(url, limits=limits) as client:
            return await asyncio.gather(*(ask(client, n) for n in range(60)))

    # Seats only: with rates, a late simulator would count two seconds' requests as one's.
    seats = POOL.replace("workers = 5, qps = 20", "workers = 1")
    with serve(tmp_path, "--max-wait", "0.3", pool=seats) as served:
        answers = asyncio.run(harness(served.url))
        served.end()
    assert {one.status_code for one in answers} == {200}
    directory = tmp_path / ".ultrapar" / "latest"
    requests = read_server_log(directory / "simulator.jsonl").requests
    assert Counter(request.status for request in requests) == {200: 60}
    results = pq.read_table(directory / "results.parquet").to_pylist()
    assert Counter(row["outcome"] for row in results) == {"solved": 60}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--host", "0.0.0.0"), "--host 0.0.0.0 is not a loopback address"),
        (("--token-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE: that environment variable"),
        (("--max-wait", "0"), "--max-wait must be above 0 (got 0)"),
        (("--host", ""), "--host must be an address of this machine, such as 127.0.0.1 (got ''"),
        (("--host", "", "--allow"), "--host must be an address of this machine"),
        (
            ("--host", "192.0.2.7", "--allow"),
            "Cannot assign requested address; choose another value for --host",
        ),
        (("--port", "99999"), "--port must be a whole number from 0 to 65535 (got '99999')"),
        (("--out", "full"), "--out: "),
        (("--out", "pool.toml"), "; set --out to a writable directory"),
    ],
)
def test_an_unusable_setting_is_reported_in_one_sentence_and_nothing_starts(
    tmp_path, monkeypatch, capsys, options, says
):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("pool.toml").write_text(POOL, encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    assert main(["gateway", "--pool", "pool.toml", "--port", "0", *options]) == 4
    said = capsys.readouterr().err
    assert says in said
    assert "--ultrapar-out" not in said
    assert len(said.splitlines()) == 1
    assert not tmp_path.joinpath(".ultrapar").exists()


def test_port_in_use_is_reported_in_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("pool.toml").write_text(POOL, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["gateway", "--pool", "pool.toml", "--port", port]) == 4
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said


@pytest.mark.slow
def test_gateway_listens_on_the_other_loopback_too(tmp_path):
    async def harness(url):
        async with session(url) as client:
            return await ask(client, 1)

    with serve(tmp_path, "--host", "::1") as served:
        assert served.url.startswith("http://[::1]:")
        assert asyncio.run(harness(served.url)).status_code == 200
        served.end()


@pytest.mark.slow
def test_error_about_a_directory_in_use_names_the_given_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with serve(tmp_path, "--out", "run") as served:
        assert main(["gateway", "--pool", "pool.toml", "--port", "0", "--out", "run"]) == 4
        said = capsys.readouterr().err
        assert "run is in use by the run with process id " in said
        assert "wait until it ends or change --out\n" in said
        served.end()


@pytest.mark.slow  # the gateway counts a second Ctrl-C only a second later
def test_second_ctrl_c_ends_the_making_of_tables_and_loses_nothing(tmp_path, capsys):
    async def harness(url):
        async with session(url) as client:
            await asyncio.gather(*(ask(client, n) for n in range(5)))

    directory = tmp_path / ".ultrapar" / "latest"
    with serve(tmp_path) as served:
        process = served.process
        asyncio.run(harness(served.url))
        (maker,) = named(family_of(process.pid), "analysis.compaction_child")
        maker.send_signal(signal.SIGSTOP)
        try:
            said = said_after_ctrl_c(process)
        finally:
            maker.send_signal(signal.SIGKILL)
    assert "ultrapar gateway: ending" in said
    assert "Traceback" not in said
    assert process.returncode == 2
    assert compact([str(directory)]) == 0
    assert "5 of 5 cases graded" in capsys.readouterr().out


@pytest.mark.slow
def test_models_are_served_in_proportion_to_their_requests(tmp_path):
    async def harness(url):
        async with session(url) as client:
            asked = []
            for n in range(24):
                model = "other" if n % 4 == 3 else "m"
                asked.append(asyncio.create_task(ask(client, n, model=model)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*asked)

    with serve(tmp_path) as served:
        asyncio.run(harness(served.url))
        served.end()
    log = read_server_log(tmp_path / ".ultrapar" / "latest" / "simulator.jsonl")
    models = [row.model for row in log.requests]
    assert len(models) == 24
    assert models[:12].count("other") in range(1, 6)


def said_of_a_gateway_that_is_ended_at_once(monkeypatch):
    """The output of `ultrapar gateway`, with a Ctrl-C as soon as it prints its address."""
    said = []

    def say(line):
        said.append(line)
        if line.startswith("Ctrl-C"):
            raise KeyboardInterrupt

    monkeypatch.setattr(serving, "write_line", say)
    assert main(["gateway", "--pool", "pool.toml", "--port", "0"]) == 0
    return said


@pytest.mark.slow
def test_ctrl_c_while_the_address_is_printed_ends_the_gateway_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("pool.toml").write_text(POOL, encoding="utf-8")
    said = said_of_a_gateway_that_is_ended_at_once(monkeypatch)
    assert said[-1].startswith("results in ")
    assert (tmp_path / ".ultrapar" / "latest" / "results.parquet").exists()
