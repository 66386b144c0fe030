"""Servers that have not started yet, load their model, or stop and come back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from tests.faults.byte_faults import bytes_
from tests.plugin.conftest import cases
from tests.raw_server import response
from tests.running import Running, wait_until
from tests.scripted_server import ScriptedServer

pytestmark = pytest.mark.slow

LOADING = {
    "llama.cpp": (b"503 Service Unavailable", b'{"error":{"code":503,"message":"Loading model"}}'),
    "hugging face": (
        b"503 Service Unavailable",
        b'{"error":"Model org/m is currently loading","estimated_time":20.0}',
    ),
    "ollama": (b"500 Internal Server Error", b'{"error":"llm server loading model"}'),
    # vllm-project/production-stack, its router
    "router": (b"400 Bad Request", b'{"error":"Model m not found or vLLM engine is sleeping."}'),
    # vllm-project/aibrix#1449, kubernetes-sigs/gateway-api-inference-extension#1430, and the page
    # of a proxy in front of a server that has not started yet
    "envoy": (
        b"503 Service Unavailable",
        b"upstream connect error or disconnect/reset before headers. reset reason: remote "
        b"connection failure, transport failure reason: delayed connect error: Connection refused",
    ),
    "gateway": (b"503 Service Unavailable", b"no healthy upstream"),
    "nginx": (b"502 Bad Gateway", b"<html><title>502 Bad Gateway</title></html>"),
}


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start_in(seconds, port, opened):
    """Start a server at a port after that time, in a thread; it is appended to `opened`."""

    def start():
        time.sleep(seconds)
        opened.append((ScriptedServer(port=port).__enter__(), time.monotonic()))

    thread = threading.Thread(target=start)
    thread.start()
    return thread


def test_run_waits_for_a_server_that_must_name_its_model(project, workers):
    port = closed_port()
    project.suite(cases(["say a"]))
    opened: list[tuple[ScriptedServer, float]] = []
    thread = start_in(1.5, port, opened)
    url = f"--ultrapar-model=http://127.0.0.1:{port}/v1"
    result = project.run(workers, url, "--ultrapar-report=off", pool=False)
    thread.join()
    said = result.stdout.str()
    opened[0][0].__exit__(None, None, None)
    assert result.ret == 0, said
    if workers == "-n0":
        assert (
            f"ultrapar: waiting for http://127.0.0.1:{port}/v1: no server answers (Connection "
            "refused); giving up after 120 s\n"
        ) in said


@pytest.mark.parametrize("check", [(), ("--ultrapar-check",)])
def test_run_waits_for_a_port_that_opens_later(project, workers, check):
    port = closed_port()
    project.write_pool(base_url=f"http://127.0.0.1:{port}/v1")
    project.suite(cases(20))
    with Running(project.pytester.path, workers, *check) as run:
        wait_until(lambda: "waiting" in run.output)
        with ScriptedServer(port=port) as server:
            code, said = run.wait()
    assert code == 0
    assert project.kinds() == {("solved", None): 20}
    asked = [one for one in server.log.requests if one.prompt.startswith("say")]
    assert len(asked) == 20
    where = f"127.0.0.1:{port}"
    if check:
        assert (
            f"nothing is listening on {where}; giving up after 120 s (--ultrapar-wait-for-servers)"
            in said
        )
    else:
        assert (
            f"instance p/m ({where}/v1) cannot be reached; giving up after 120 s (--ultra" in said
        )


@pytest.mark.parametrize("whose", LOADING)
def test_run_waits_for_a_model_that_loads_without_using_up_attempts(project, whose, workers):
    status, body = LOADING[whose]
    loading = bytes_(response(body, status=status))
    project.server.weather = lambda asked: loading if asked.t_s < 6.0 else None
    project.suite(cases(20))
    result = project.run(workers, "--ultrapar-max-attempts=2")
    assert result.ret == 0
    assert project.kinds() == {("solved", None): 20}
    assert "/v1) is loading its model; giving up after 120 s" in result.stdout.str()
    # One at a time, every second or two.
    assert len(project.server.prompts) <= 20 + 12
    assert set(project.reasons().values()) == {""}


def test_server_that_dies_is_reported_and_used_again_within_two_seconds(project, workers):
    port, opened = closed_port(), []
    project.write_pool(base_url=f"http://127.0.0.1:{port}/v1")
    project.suite(cases(60))
    first = ScriptedServer(port=port).__enter__()
    threads = []

    def weather(asked):
        if asked.number == 20 and not threads:
            threads.append(threading.Thread(target=lambda: first.__exit__(None, None, None)))
            threads[0].start()
            threads.append(start_in(7.0, port, opened))

    first.weather = weather
    result = project.run(workers)
    for thread in threads:
        thread.join()
    ((second, ready_s),) = opened
    try:
        assert result.ret == 0
        assert project.kinds() == {("solved", None): 60}
        answered = [
            one.prompt for one in first.log.requests + second.log.requests if one.status == 200
        ]
        assert sorted(answered) == sorted(f"say {n}" for n in range(60))
        assert second.log.requests[0].t_s - ready_s <= 2.0 + 1.0  # a busy machine
        assert ") cannot be reached; giving up after " in result.stdout.str()
    finally:
        second.__exit__(None, None, None)


def test_cases_of_a_server_that_never_starts_end_after_the_wait(project, workers):
    project.write_pool(base_url=f"http://127.0.0.1:{closed_port()}/v1")
    project.suite(cases(5))
    began_s = time.monotonic()
    project.run(workers, "--ultrapar-wait-for-servers=4")
    assert time.monotonic() - began_s >= 4.0
    assert project.kinds() == {("infra", "no_lane"): 5}


def ends_at_once(project, url):
    project.write_pool(base_url=url)
    project.suite(cases(5))
    began_s = time.monotonic()
    project.run("-n0", "--ultrapar-wait-for-servers=600")
    assert time.monotonic() - began_s < 60.0
    assert project.kinds() == {("infra", "no_lane"): 5}
    return project.reasons()["p/m/key0"]


def test_unknown_host_ends_the_run_immediately(project):
    reason = ends_at_once(project, "https://no-such-host.invalid/v1")
    assert reason.startswith("instance p/m (no-such-host.invalid/v1) has an unknown host name")


def test_server_without_tls_ends_the_run_immediately(project):
    def serve(server):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = server.accept()
                with peer:
                    peer.recv(1024)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        reason = ends_at_once(project, f"https://127.0.0.1:{server.getsockname()[1]}/v1")
        server.shutdown(socket.SHUT_RDWR)
    assert "or does not use TLS" in reason


@pytest.mark.parametrize("seconds", ["-1", "soon", "nan", "1e9"])
def test_longest_wait_is_a_number_of_seconds(project, seconds):
    project.suite(cases(1))
    said = project.refusal(project.run("-n0", f"--ultrapar-wait-for-servers={seconds}"))
    assert "--ultrapar-wait-for-servers" in said
