from __future__ import annotations

import os
import signal

import httpx
import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.testing import read_server_log
from tests import simulator_process
from tests.simulated_pool import question

POOL = """
schema = 1

[[provider]]
name = "lab"
api = "openai"
base_url = "https://example.invalid/v1"
keys = [{ name = "key0", env = "SIMULATED_KEY_0" }, { name = "key1", env = "SIMULATED_KEY_1" }]
per_key = { workers = 2 }

[[provider.model]]
name = "m"
instances = ["i0", "i1"]
"""


@pytest.fixture
def pool(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(POOL)
    return path


def simulating(*arguments):
    """A server of that pool; one of its two keys is set."""
    environ = {**os.environ, "SIMULATED_KEY_0": "s3cret"}
    environ.pop("SIMULATED_KEY_1", None)
    return simulator_process.simulating(*arguments, env=environ)


def status_of(base_url, token, model):
    """The status of the answer to a request."""
    headers = {"authorization": f"Bearer {token}"}
    url = f"{base_url}/chat/completions"
    return httpx.post(url, headers=headers, json=question(model=model), timeout=60.0).status_code


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_simulate_serves_until_it_is_interrupted(tmp_path, pool, number):
    log_path = tmp_path / "server.log"
    with simulating(
        "--pool", pool, "--port", 0, "--log", log_path, "--refuse", "instance:i1=500"
    ) as (process, said):
        (base_url,) = [word for word in said.split() if word.startswith("http://")]
        for token, model, status in (
            ("s3cret", "i0", 200),
            ("sim-lab-key1", "i0", 200),
            ("sim-lab-key0", "i0", 401),
            ("s3cret", "i1", 500),
        ):
            assert status_of(base_url, token, model) == status
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait() == 0
    assert rest == "ended\n"
    log = read_server_log(log_path)
    assert [row.status for row in log.requests] == [200, 200, 401, 500]
    assert [row.key for row in log.requests] == ["key0", "key1", None, "key0"]


@pytest.mark.slow
def test_simulate_prints_models_and_keys_but_no_secret(pool):
    with simulating("--pool", pool, "--port", 0) as (_, said):
        assert said.startswith("SIMULATED")
        assert "/lab/v1" in said
        assert "model m (echo): i0, i1" in said
        assert "key key0: token from SIMULATED_KEY_0" in said
        assert "key key1: token sim-lab-key1 (SIMULATED_KEY_1 is not set)" in said
        assert "s3cret" not in said


def test_missing_pool_gives_one_line_and_exit_code_4(tmp_path, capsys):
    assert main(["simulate", "--pool", str(tmp_path / "none.toml")]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("ultrapar simulate: error: ")
    assert said.err.count("\n") == 1
    assert "none.toml" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--refuse", "i=1"], "400 to 599"),
        (["--refuse", "i=404"], "no such key or instance"),
        (["--faults", "none.toml"], "none.toml: there is no such file"),
        (["--port", "99999"], "a port must be from 0 to 65535"),
    ],
)
def test_settings_that_do_not_fit_the_pool_give_one_line_and_exit_code_4(
    pool, capsys, arguments, says
):
    assert main(["simulate", "--pool", str(pool), *arguments]) == 4
    said = capsys.readouterr().err
    assert said.startswith("ultrapar simulate: error: ")
    assert said.count("\n") == 1
    assert says in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "SUBCOMMAND"),
        (["simulate"], "--pool"),
        (["simulate", "--pool", "p", "--refuse", "key1"], "KEY=STATUS"),
        (["simulate", "--pool", "p", "--port", "x"], "--port"),
    ],
)
def test_bad_arguments_give_exit_code_4(capsys, arguments, says):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 4
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_simulate_applies_its_faults_file(tmp_path, pool):
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "error"\nerror = "overloaded"\nkey = "key1"\n')
    arguments = ("--pool", pool, "--port", 0, "--faults", faults, "--refuse", "instance:i1=404")
    with simulating(*arguments) as (_, said):
        (base_url,) = [word for word in said.split() if word.startswith("http://")]
        assert f"faults: {faults}" in said
        for token, model, status in (
            ("s3cret", "i0", 200),
            ("sim-lab-key1", "i0", 503),
            ("sim-lab-key1", "i1", 404),
        ):
            assert status_of(base_url, token, model) == status
