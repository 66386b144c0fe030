"""The plugin's environment variables, parsed or refused."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.setting_values import read_environment, settle
from pytest_ultrapar.pool.settings import Repeats, Shard, WhichLog

PORTS = 'must be a list of ports such as "8001,8002"'


def test_environment_without_known_variables_is_empty():
    assert read_environment({"PATH": "/bin"}) == {}


def test_empty_variable_counts_as_unset():
    variables = ["RATE_MODE", "NUM_INSTANCES", "STORAGE_FORMAT", "DEBUG_LOG", "MAX_WORKERS"]
    variables += ["DEBUG_PROCESS_NUM", "USE_CONCURRENT", "USE_MULTI_VLLM", "VLLM_PORTS"]

    assert read_environment(dict.fromkeys(variables, " ")) == {}


def test_every_variable_is_read_with_its_type():
    environ = {
        "RATE_MODE": "Adaptive",
        "NUM_INSTANCES": "20x3",
        "STORAGE_FORMAT": "json",
        "DEBUG_LOG": "true",
        "DEBUG_PROCESS_NUM": "1",
        "MAX_WORKERS": " 4 ",
        "USE_CONCURRENT": "False",
        "USE_MULTI_VLLM": "0",
        "VLLM_PORTS": "8001,8002, 8003",
    }

    found = read_environment(environ)

    assert found.pop("debug_log").setting == "all"
    assert found == {
        "rate_mode": "adaptive",
        "repeats": Repeats(20, 3),
        "storage": "json",
        "debug_process_num": 1,
        "max_workers": 4,
        "mode": "rotate",
        "use_multi_vllm": False,
        "vllm_ports": (8001, 8002, 8003),
    }


def test_prefixed_names_take_precedence_and_accept_the_options_values():
    environ = {
        "MAX_WORKERS": "4",
        "ULTRAPAR_MAX_WORKERS": "9",
        "NUM_INSTANCES": "2",
        "ULTRAPAR_REPEATS": " ",
        "USE_CONCURRENT": "false",
        "ULTRAPAR_MODE": "serial",
        "DEBUG_LOG": "true",
        "ULTRAPAR_DEBUG_LOG": "2",
        "DEBUG_PROCESS_NUM": "1",
        "ULTRAPAR_STORAGE": "json",
        "ULTRAPAR_SHARD": "1/2",
    }

    options = settle({}, environ)

    said = {name: (getattr(options, name), whence) for name, whence in options.origin.items()}
    assert said["max_workers"] == (9, "environment ULTRAPAR_MAX_WORKERS")
    assert said["repeats"] == (Repeats(2), "environment NUM_INSTANCES")
    assert said["mode"] == ("serial", "environment ULTRAPAR_MODE")
    assert said["debug_log"] == (
        WhichLog(is_on=True, number=2),
        "environment ULTRAPAR_DEBUG_LOG",
    )
    assert said["storage"] == ("json", "environment ULTRAPAR_STORAGE")
    assert said["shard"] == (Shard(1, 2), "environment ULTRAPAR_SHARD")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ULTRAPAR_STORAGE", "csv", 'must be "parquet" or "json" (got "csv")'),
        ("ULTRAPAR_MAX_WORKERS", "0", "must be >= 1 (got 0)"),
        ("RATE_MODE", "fast", 'must be "fixed" or "adaptive" (got "fast")'),
        ("STORAGE_FORMAT", "csv", 'must be "parquet" or "json" (got "csv")'),
        ("NUM_INSTANCES", "0", "must be >= 1 (got 0)"),
        ("NUM_INSTANCES", "20x0", "must be >= 1 (got 0)"),
        ("MAX_WORKERS", "four", 'must be an integer >= 1 and <= 100000 (got "four")'),
        ("MAX_WORKERS", "-1", "must be >= 1 (got -1)"),
        ("MAX_WORKERS", "9" * 19, f'must be an integer >= 1 and <= 100000 (got "{"9" * 19}")'),
        ("DEBUG_LOG", "maybe", 'must be "true" or "false" (got "maybe")'),
        ("DEBUG_PROCESS_NUM", "0", "must be >= 1 (got 0)"),
        ("VLLM_PORTS", "8001,", f'{PORTS} (it contains "")'),
        ("VLLM_PORTS", "a", f'{PORTS} (it contains "a")'),
        ("VLLM_PORTS", "sk-canary-0123456789", f"{PORTS} (it contains a longer text)"),
        # A key can consist of digits only.
        ("VLLM_PORTS", "123456789012345", f"{PORTS} (it contains a longer text)"),
    ],
)
def test_invalid_variable_is_refused_by_name(variable, value, message):
    with pytest.raises(ConfigError) as refusal:
        read_environment({variable: value})

    assert str(refusal.value) == f"environment: {variable} {message}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "VLLM_PORTS[0] must be >= 1 (got 0)"),
        ("1,65536", "VLLM_PORTS[1] must be <= 65535 (got 65536)"),
        (
            "8001,8002,8001",
            'VLLM_PORTS[2] must be unique (got "8001", as in VLLM_PORTS[0])',
        ),
    ],
)
def test_invalid_port_is_refused_by_its_position(value, message):
    with pytest.raises(ConfigError) as refusal:
        read_environment({"VLLM_PORTS": value})

    assert str(refusal.value) == f"environment: {message}"
