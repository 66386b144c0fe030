"""The environment of a command of `ultrapar gateway`, and commands that cannot run."""

from __future__ import annotations

import pytest

from pytest_ultrapar.coordinator.gateway.child_command import (
    environment,
    look_up,
    variables,
)

ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("path", "first", "key"),
    [
        ("/chat/completions", ("OPENAI_BASE_URL", f"{ADDRESS}/v1"), "OPENAI_API_KEY"),
        ("/v1/messages", ("ANTHROPIC_BASE_URL", ADDRESS), "ANTHROPIC_API_KEY"),
        (
            "/v1beta/models/{model}:generateContent",
            ("GOOGLE_GEMINI_BASE_URL", ADDRESS),
            "GEMINI_API_KEY",
        ),
    ],
)
def test_only_clients_of_served_apis_get_variables(path, first, key):
    (own,) = variables([path], ADDRESS, "token")
    pairs = [*own.items()]
    assert (pairs[0], pairs[-1]) == (first, (key, "token"))
    assert set(own.values()) <= {ADDRESS, f"{ADDRESS}/v1", "token"}


def test_command_gets_this_environment_without_addresses_of_other_servers():
    own = {"PATH": "/bin", "OPENAI_API_KEY": "sk-own", "OPENAI_API_HOST": "x", "NO_PROXY": "a.b"}
    assert environment(own, [{"OPENAI_API_KEY": "token"}], "127.0.0.1") == {
        "DEEPEVAL_PER_ATTEMPT_TIMEOUT_SECONDS_OVERRIDE": "600",
        "PATH": "/bin",
        "OPENAI_API_KEY": "token",
        "NO_PROXY": "a.b,127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    own = {"DEEPEVAL_PER_ATTEMPT_TIMEOUT_SECONDS_OVERRIDE": "30"}
    assert environment(own, [], "127.0.0.1").items() >= own.items()


def test_command_that_cannot_run_has_a_shells_exit_code(tmp_path):
    look_up("sh")
    plain = tmp_path / "plain"
    plain.touch()
    for name, code, says in (
        ("no-such-command", 127, "command not found"),
        (str(plain), 126, "Permission denied"),
        (str(tmp_path), 126, "Permission denied"),
    ):
        with pytest.raises(OSError, match=says) as raised:
            look_up(name)
        assert isinstance(raised.value, FileNotFoundError) is (code == 127)
