"""`ultrapar check` against real servers; the server's own log judges limits."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.coordinator.check import lane_requests, pool_check
from pytest_ultrapar.coordinator.keys.key_lock_file import Holder, KeyLocks, take_all
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.testing import read_server_log
from tests.raw_server import RawServer, response
from tests.simulated_pool import pool_text
from tests.simulated_pool import serving as simulating

CANARY = "sk-canary-4f9a1c77e2b05d"
LAB = """
schema = 1
[[provider]]
name = "lab"
api = "openai"
base_url = "BASE_URL"
keys = [{ name = "key0", env = "CHECK_KEY_0" }, { name = "key1", env = "CHECK_KEY_1" }]
timeout_s = 60
"""
MODEL = '[[provider.model]]\nname = "{0}"\n'
ONE = LAB + MODEL.format("m")


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CHECK_KEY_0", f"{CANARY}-0")
    monkeypatch.setenv("CHECK_KEY_1", f"{CANARY}-1")
    monkeypatch.setenv("ULTRAPAR_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys):
    """A function that runs `ultrapar check` on `pool.toml` and returns its exit code and lines."""

    def call(*options):
        try:
            code = main(["check", "--pool", "pool.toml", *options])
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        assert CANARY not in out + err
        return code, (out + err).splitlines()

    return call


@contextmanager
def serving(folder, text, faults="", refusals=None):
    """A simulated server of the pool in `text`; `pool.toml` then has its address."""
    tokens = {f"lab/key{n}": f"{CANARY}-{n}" for n in range(2)}
    served = text.replace("BASE_URL", "https://example.invalid/v1")
    with simulating(
        served, folder / "server.log", faults=faults, tokens=tokens, refusals=refusals
    ) as one:
        write_pool(folder, text, one.base_url("lab"))
        yield one


def write_pool(folder, text, url):
    (folder / "pool.toml").write_text(text.replace("BASE_URL", url))


@contextmanager
def silent(folder, text=ONE):
    """A server, in `pool.toml`, that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        write_pool(folder, text, f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        yield listener


def log(folder):
    return read_server_log(folder / "server.log")


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def said_of(lines, lane):
    """The word and the reason in a lane's line."""
    (line,) = [one for one in lines if one.split()[1:2] == [lane]]
    word, _, *rest = line.split(maxsplit=4)
    return word, rest[2] if len(rest) > 2 else ""


def test_connections_are_closed_although_all_results_are_known_before(tmp_path, check, monkeypatch):
    closed = []

    class SlowToClose(HttpClient):
        async def close(self):
            await asyncio.sleep(0.1)
            await super().close()
            closed.append(True)

    monkeypatch.setattr(lane_requests, "HttpClient", SlowToClose)
    with serving(tmp_path, LAB + MODEL.format("fine")):
        assert check()[0] == 0
    assert closed == [True]


def test_interrupt_lets_the_loop_finish_its_step(tmp_path, check, monkeypatch):
    ended = []

    class Interrupting(HttpClient):
        async def exchange(self, *of, **how):
            os.kill(os.getpid(), signal.SIGINT)
            ended.append("step")
            return await super().exchange(*of, **how)

        async def close(self):
            await super().close()
            ended.append("close")

    monkeypatch.setattr(lane_requests, "HttpClient", Interrupting)
    with serving(tmp_path, ONE):
        assert check()[0] == 2
    assert ended == ["step", "step", "close"]


def test_each_lane_is_checked_once_and_reports_its_own_failure(tmp_path, check, monkeypatch):
    port = closed_port()
    text = (
        LAB
        + "".join(MODEL.format(name) for name in ("fine", "gone", "busy", "broken"))
        + '[[provider]]\nname = "slow"\napi = "openai"\nbase_url = "SLOW_URL"\n'
        'keys = [{ name = "none" }]\ntimeout_s = 0.5\n'
        + MODEL.format("slow")
        + f'[[provider]]\nname = "shut"\napi = "openai"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        'keys = [{ name = "none" }]\n' + MODEL.format("shut")
    )
    faults = '[[fault]]\ninstance = "broken"\nkind = "malformed"\n'
    monkeypatch.setenv("CHECK_KEY_1", f"{CANARY}-wrong")
    refusals = {"instance:gone": 404, "instance:busy": 429}
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        text = text.replace("SLOW_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        server = stack.enter_context(serving(tmp_path, text, faults, refusals=refusals))
        code, lines = check("--wait-for-servers", "0")
    assert code == 1
    assert lines[0].endswith("10 lanes of 6 models: one chat completion of 1 token per lane")
    assert lines[1] == "ultrapar check: lab sends CHECK_KEY_0, CHECK_KEY_1 to 127.0.0.1"
    assert said_of(lines, "lab/fine/key0") == ("ok", "")
    url = f"{server.base_url('lab')}/chat/completions"
    for lane, word, why in [
        (
            "lab/gone/key0",
            "failed",
            "instance lab/gone was not found (404), or does not serve gone (the request for the "
            f"model gone went to {url}; ",
        ),
        (
            "slow/slow/none",
            "unsure",
            "no complete answer arrived in time: no answer within 0.5 s",
        ),
        ("lab/busy/key0", "limited", "the rate limit is reached: "),
        (
            "lab/broken/key0",
            "failed",
            "the answer cannot be read (the request for the model broken went to ",
        ),
        ("shut/shut/none", "failed", "instance shut/shut cannot be reached: cannot connect: "),
    ]:
        found = said_of(lines, lane)
        assert found[0] == word
        assert found[1].startswith(why)
    dead = "key lab/key1 (environment CHECK_KEY_1) was refused (401, or a message that rejects"
    for model in ("fine", "gone", "busy", "broken"):
        assert said_of(lines, f"lab/{model}/key1")[1].startswith(dead)
    assert lines[-3:] == [
        "1 of 10 lanes ok: 4 auth, 1 connect, 1 malformed, 1 not_found, 1 rate, 1 timeout",
        "failed: lab/broken/key1, lab/busy/key1, lab/fine/key1, lab/gone/key1: key lab/key1 "
        "(environment CHECK_KEY_1) was refused (401, or a message that rejects the key): HTTP 401: "
        '{"error":{"message":"Incorrect or no API key provided","type":"invalid_request_error",'
        '"param":null,"code":"invalid_api_key"}}',
        "no lane is ok for the models gone, busy, broken, slow and 1 more",
    ]
    assert len(log(tmp_path).requests) == 8


def test_lanes_of_one_key_with_one_seat_are_checked_one_by_one(tmp_path, check):
    models = "".join(MODEL.format(f"m{n}") for n in range(5))
    with serving(tmp_path, LAB + "per_key = { workers = 1 }\n" + models):
        code, _ = check()
    assert code == 0
    seen = log(tmp_path)
    assert len(seen.requests) == 10
    assert seen.count(429) == 0
    assert seen.max_in_flight(key="key0") == seen.max_in_flight(key="key1") == 1


def test_rate_of_the_pool_holds(tmp_path, check):
    models = "".join(MODEL.format(f"m{n}") for n in range(4))
    with serving(tmp_path, LAB + "qps = 10\n" + models):
        code, _ = check()
    assert code == 0
    seen = log(tmp_path)
    assert len(seen.requests) == 8
    assert seen.count(429) == 0
    times = [one.t_arrival_s for one in seen.requests]
    assert times[-1] - times[0] >= 7 * 0.09


def test_option_model_limits_the_checked_lanes_and_the_needed_keys(tmp_path, check, monkeypatch):
    text = LAB + MODEL.format("one") + 'keys = ["key0"]\n' + MODEL.format("two")
    monkeypatch.delenv("CHECK_KEY_1")
    with serving(tmp_path, text):
        code, lines = check("--model", "o*")
        assert code == 0
        assert lines[0].endswith("1 lane of 1 model: one chat completion of 1 token per lane")
        code, lines = check("--model", "nothing")
        assert (code, lines) == (
            4,
            [
                "ultrapar check: error: --model 'nothing' matches no model in pool.toml; allowed: "
                "one, two"
            ],
        )
    assert len(log(tmp_path).requests) == 1


def test_azure_gets_requests_in_its_own_form(tmp_path, check):
    text = ONE
    with serving(tmp_path, text) as server:
        azure = text.replace('"openai"', '"azure-openai"\napi_version = "2024-10-21"')
        root = server.base_url("lab").removesuffix("/v1")
        (tmp_path / "pool.toml").write_text(azure.replace("BASE_URL", root))
        code, lines = check()
        assert code == 0, lines
    assert len(log(tmp_path).requests) == 2


@pytest.mark.parametrize(("status", "label"), [(429, "rate"), (503, "overload")])
def test_check_fails_only_if_no_lane_is_ok(tmp_path, check, status, label):
    text = LAB + MODEL.format("busy")
    with serving(tmp_path, text, refusals={"instance:busy": status}):
        code, lines = check()
    assert code == 1
    assert f"0 of 2 lanes ok: 2 {label}" in lines
    with serving(tmp_path, text + MODEL.format("fine"), refusals={"instance:busy": status}):
        code, lines = check()
    assert code == 0
    assert "no lane is ok for the model busy" in lines


def test_keys_that_are_not_set_are_named_in_one_sentence_and_nothing_is_sent(
    tmp_path, check, monkeypatch
):
    monkeypatch.delenv("CHECK_KEY_0")
    monkeypatch.setenv("CHECK_KEY_1", "  ")
    with serving(tmp_path, ONE):
        code, lines = check()
    assert code == 4
    (line,) = lines
    assert line.startswith("ultrapar check: error: pool.toml")
    assert line.endswith(
        "names the environment variable CHECK_KEY_0, which is unset or empty; so is CHECK_KEY_1"
    )
    assert log(tmp_path).requests == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeout", "0"), "--timeout must be above 0 and at most 86400 (got 0)"),
        (("--timeout", "nan"), "--timeout must be above 0 and at most 86400 (got nan)"),
        (("--key-lock", "no"), "argument --key-lock: invalid choice: 'no'"),
        (("extra",), "unrecognized arguments: extra"),
    ],
)
def test_options_that_cannot_be_used_are_refused(tmp_path, check, options, said):
    write_pool(tmp_path, ONE, "x")
    code, lines = check(*options)
    assert code == 4
    assert said in lines[-1]


def test_waiting_lanes_are_named_while_no_answer_comes(tmp_path, check, monkeypatch):
    monkeypatch.setattr(pool_check, "_QUIET_S", 0.05)
    with silent(tmp_path):
        code, lines = check("--timeout", "0.5")
    assert code == 1
    assert lines[2] == "ultrapar: waiting for 2 lanes (lab/m/key0, lab/m/key1)"
    assert said_of(lines, "lab/m/key0") == (
        "unsure",
        "no complete answer arrived in time: no answer within 0.5 s",
    )


def test_message_names_the_awaited_server_and_the_longest_wait(tmp_path, check, monkeypatch):
    monkeypatch.setattr(pool_check, "_QUIET_S", 0.1)
    port = closed_port()
    write_pool(tmp_path, ONE, f"http://127.0.0.1:{port}/v1")
    code, lines = check("--wait-for-servers", "1")
    assert code == 1
    assert (
        "ultrapar: waiting for 2 lanes (lab/m/key0, lab/m/key1): cannot connect: nothing "
        f"is listening on 127.0.0.1:{port}; giving up after 1 s (--wait-for-servers)"
    ) in lines


@pytest.mark.parametrize(
    ("budget", "prices"),
    [("", ""), ("budget = 1", "price_per_mtok_in = 1\nprice_per_mtok_out = 2\n")],
)
def test_simulated_provider_is_started_for_the_check(tmp_path, check, budget, prices):
    text = '[[provider]]\nname = "demo"\napi = "simulated"\nkeys = [{ name = "k" }]\n'
    pool = f"schema = 1\n[pool]\n{budget}\n{text}{MODEL.format('m')}\n{prices}"
    (tmp_path / "pool.toml").write_text(pool)
    code, lines = check()
    assert code == 0
    assert lines[0].startswith("ultrapar check: pool pool.toml, SIMULATED, 1 lane of 1 model: ")
    assert said_of(lines, "demo/m/k") == ("ok", "")


def test_check_runs_against_a_simulated_provider_that_is_already_running(tmp_path, check):
    text = pool_text(name="lab", keys=2)
    write_pool(tmp_path, text, "")
    with simulating(text, tmp_path / "server.log", refusals={"key1": 401}) as server:
        root = server.base_url("lab").removesuffix("/lab/v1")
        code, lines = check("--simulator", root)
    assert code == 1
    assert "SIMULATED" in lines[0]
    assert said_of(lines, "lab/m/key1")[1].startswith("key lab/key1 was refused (401, ")
    assert "SIMULATED: 1 of 2 lanes ok: 1 auth" in lines
    assert len(log(tmp_path).requests) == 2
    code, lines = check("--simulator", root)
    assert code == 4
    assert lines[0].startswith(f"ultrapar check: error: --simulator: no server answers at {root} (")
    for url in ("http://example.com", "http://127.0.0.1:99999", "http://["):
        code, lines = check("--simulator", url)
        assert code == 4
        assert "--simulator must be an http:// URL on this machine" in lines[0]


def test_key_in_use_by_a_run_is_not_used(tmp_path, check):
    with serving(tmp_path, ONE) as server:
        name = key_identity(server.base_url("lab"), f"{CANARY}-0")
        holder = Holder(4321, "/runs/other", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        locks = take_all(tmp_path / "locks", [name], holder)
        assert isinstance(locks, KeyLocks)
        try:
            code, lines = check("--key-lock", "fail")
        finally:
            locks.give_back({})
        assert code == 4
        assert lines[0].startswith(
            "ultrapar check: error: key lab/key0 is in use by the run with process id 4321 "
            "(results in /runs/other, since 2026-01-02 03:04:05 UTC); "
        )
        assert "or use --key-lock wait" in lines[0]
        assert log(tmp_path).requests == ()
        assert check("--key-lock", "fail")[0] == 0


@contextmanager
def started(stderr=subprocess.STDOUT):
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_ultrapar.cli", "check", "--pool", "pool.toml"],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_one_hanging_lane_of_300_delays_no_other_and_an_interrupt_prints_the_results(
    tmp_path,
):
    text = LAB.replace('env = "CHECK_KEY_1"', 'env = "CHECK_KEY_1", workers = 20')
    models = "".join(MODEL.format(f"m{n:03}") for n in range(150))
    faults = '[[fault]]\ninstance = "m000"\nkey = "key0"\nkind = "hang"\n'
    with serving(tmp_path, text + models, faults), started() as process:
        lines = [process.stdout.readline() for _ in range(301)]
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 2
    assert all(line.startswith("ok ") for line in lines[2:])
    assert "ultrapar check: interrupted\n299 of 300 lanes ok (median " in rest
    assert "no result for lab/m000/key0\n" in rest
    assert len(rest.splitlines()) < 8
    assert "Traceback" not in rest
    assert CANARY not in "".join(lines) + rest
    seen = log(tmp_path)
    assert len(seen.requests) == 300
    assert seen.count(429) == 0
    assert seen.max_in_flight(key="key1") <= 20


@pytest.mark.slow
def test_interrupt_before_the_first_answer_ends_the_check_immediately(tmp_path):
    with silent(tmp_path) as listener, started() as process:
        connection, _ = listener.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[0]
        assert process.returncode == 2
    assert said.endswith("ultrapar check: interrupted before any lane had a result\n")
    assert "Traceback" not in said


async def never_end(peer, _):
    await peer.send(b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await peer.send(b"10000\r\n%s\r\n" % (b"x" * 0x10000))


def test_endless_answer_is_soon_abandoned(tmp_path, check):
    with RawServer(never_end) as server:
        write_pool(tmp_path, ONE, server.base_url)
        code, lines = check("--model", "m")
        assert code == 1
        said = said_of(lines, "lab/m/key0")
        assert said[0] == "failed"
        assert said[1].endswith("and the name): the answer is larger than 2097152 bytes")


@pytest.mark.slow
def test_check_ends_quietly_when_its_pipe_closes(tmp_path):
    text = ONE.replace("timeout_s = 60", "timeout_s = 1")
    with silent(tmp_path, text), started(stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith("ultrapar check: pool ")
        process.stdout.close()
        assert process.stderr.read() == ""
        # The exit code with which a shell reports SIGPIPE.
        assert process.wait(60) == 141


def test_simulator_for_a_real_pool_is_refused(tmp_path, check):
    write_pool(tmp_path, ONE, "http://127.0.0.1:1/v1")
    code, lines = check("--simulator", "http://127.0.0.1:8123")
    assert code == 4
    assert "needs a selected model of a provider with api = " in lines[0]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "",
            "rpm = 500, tpm = 3000000 (declared: nothing); "
            "to declare it, use per_key_model = { rpm",
        ),
        (
            "per_key = { tpm = 3000000 }",
            "rpm = 500 (declared: tpm = 3000000); to declare it, use per_key_",
        ),
        (
            "per_key = { rpm = 60 }",
            "rpm = 500, tpm = 3000000 (declared: rpm = 60); to declare it, use ",
        ),
        ("per_key = { rpm = 500, tpm = 3000000 }", None),
    ],
)
def test_limits_in_headers_are_offered_next_to_the_declared_limits(tmp_path, check, limit, said):
    headers = (b"x-ratelimit-limit-requests: 500", b"x-ratelimit-limit-tokens: 3000000")
    body = b'{"choices": [{"message": {"content": "OK"}, "finish_reason": "stop"}]}'

    async def answer(peer, _):
        await peer.send(response(body, *headers))

    with RawServer(answer) as server:
        write_pool(tmp_path, ONE.replace("timeout_s", f"{limit}\ntimeout_s"), server.base_url)
        before = (tmp_path / "pool.toml").read_bytes()
        code, lines = check()
    assert code == 0
    told = [line for line in lines if line.startswith("headers from")]
    assert len(told) == (said is not None)
    for line in told:
        assert line.startswith(f"headers from lab/m/key0, lab/m/key1 state {said}"), line
    assert (tmp_path / "pool.toml").read_bytes() == before
