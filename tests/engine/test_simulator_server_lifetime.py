from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap

import httpx
import psutil
import pytest

from pytest_ultrapar.coordinator.services import Services
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.testing import read_server_log
from tests.simulated_pool import (
    AT_ONCE,
    NEVER,
    PROVIDER,
    bearer,
    question,
    running,
    simulated_pool,
)

GONE_WITHIN_S = 120


def ask(server, model="m"):
    url = server.base_url(PROVIDER) + "/chat/completions"
    return httpx.post(url, headers=bearer(), json=question(model=model), timeout=60.0).status_code


def python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_stop_ends_the_server_with_a_complete_log_and_may_be_called_twice(tmp_path):
    server = SimulatorProcess.start(simulated_pool(), log_path=tmp_path / "server.log")
    child = psutil.Process(server.pid)
    for _ in range(5):
        assert ask(server) == 200
    server.stop()
    server.stop()
    assert not child.is_running()
    log = read_server_log(tmp_path / "server.log")
    assert log.count(200) == len(log.requests) == 5


def test_stop_does_not_wait_for_requests_in_flight(tmp_path):
    pool = simulated_pool(latency=NEVER)
    with (
        running(pool, tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        path = server.base_url(PROVIDER).split(str(server.port))[1]
        body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
        client.sendall(
            f"POST {path}/chat/completions HTTP/1.1\r\nAuthorization: Bearer sim-lab-key0\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        # This answer, on another connection, shows that the first request has been read.
        assert ask(server, "none") == 404
        server.stop()
        assert client.recv(1) == b""
    rows = read_server_log(tmp_path / "server.log").requests
    assert [(row.status, row.t_end_s is None) for row in rows] == [(None, True), (404, False)]


CONTROLLER = """
    import os, signal, sys
    from pathlib import Path
    from pytest_ultrapar.simulator.process import SimulatorProcess
    from tests.simulated_pool import simulated_pool

    server = SimulatorProcess.start(simulated_pool(), log_path=Path(sys.argv[1]))
    server.port
    forked = os.fork() if sys.argv[2] == "forks" else 0
    if forked or sys.argv[2] != "forks":
        print(server.pid, forked, flush=True)
    signal.pause()
"""


@pytest.mark.slow
def test_server_ends_with_a_killed_controller(tmp_path):
    with python(CONTROLLER, tmp_path / "server.log", "alone") as controller:
        server = psutil.Process(int(controller.stdout.readline().split()[0]))
        controller.kill()
    server.wait(GONE_WITHIN_S)


def test_sigint_does_not_end_a_controllers_server_and_sigterm_does(tmp_path):
    with running(simulated_pool(), tmp_path) as server:
        child = psutil.Process(server.pid)
        child.send_signal(signal.SIGINT)
        assert ask(server) == 200
        assert os.getsid(server.pid) != os.getsid(0)
        child.send_signal(signal.SIGTERM)
        child.wait(GONE_WITHIN_S)
    assert read_server_log(tmp_path / "server.log").count(200) == 1


CLIENT = """
    import asyncio, sys
    import aiohttp
    from tests.simulated_pool import bearer, question

    async def main():
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=bearer(), connector=connector) as session:
            asks = [session.post(sys.argv[1], json=question(f"q{n}", "slow")) for n in range(50)]
            await asyncio.gather(*asks)

    asyncio.run(main())
"""


def slow_rows_when(server, log_path, enough):
    """The rows of the model `slow`, once there are enough; sends requests until then."""
    for _ in range(3000):
        rows = [row for row in read_server_log(log_path).requests if row.model == "slow"]
        if enough(rows):
            break
        ask(server, "quick")
    return rows


@pytest.mark.slow
def test_log_is_complete_after_the_kill_of_a_client(tmp_path):
    pool = simulated_pool(
        models={"slow": ("slow",), "quick": ("quick",)},
        latency={"slow": NEVER, "quick": AT_ONCE},
    )
    log_path = tmp_path / "server.log"
    with running(pool, tmp_path) as server:
        with python(CLIENT, server.base_url(PROVIDER) + "/chat/completions") as client:
            rows = slow_rows_when(server, log_path, lambda rows: len(rows) == 50)
            client.kill()
        assert len(rows) == 50
        rows = slow_rows_when(server, log_path, lambda rows: all(row.disconnected for row in rows))
    assert [row.disconnected for row in rows] == [True] * 50
    assert read_server_log(log_path).max_in_flight(model="slow") == 50


def test_port_in_use_is_a_config_error_that_names_the_port(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use"):
            SimulatorProcess.start(simulated_pool(), log_path=tmp_path / "log", port=port).base_url(
                PROVIDER
            )


def test_log_in_a_missing_directory_is_a_config_error_that_names_the_log(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere/log: No such file"):
        SimulatorProcess.start(simulated_pool(), log_path=tmp_path / "nowhere" / "log").base_url(
            PROVIDER
        )


def test_server_that_cannot_start_is_a_config_error_with_its_last_output(tmp_path, monkeypatch):
    (tmp_path / "uvicorn.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ConfigError, match="broken on purpose"):
        SimulatorProcess.start(simulated_pool(), log_path=tmp_path / "log").base_url(PROVIDER)


def test_run_waits_for_its_server_when_it_needs_the_address(tmp_path):
    services = Services(simulated_pool(), tmp_path / "nowhere")
    services.start_simulator(None)
    try:
        with pytest.raises(ConfigError, match=r"provider cannot start: .*nowhere"):
            services.base_urls  # noqa: B018 - waits
    finally:
        services.stop()
