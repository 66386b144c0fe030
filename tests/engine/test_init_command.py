"""`ultrapar init`: the pool that it writes, and that it overwrites no file."""

from __future__ import annotations

import asyncio
import os

import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.served_models import served_models
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.pool.vendors import vendors
from tests.raw_server import RawServer
from tests.scripted_server import ScriptedServer

CANARY = "sk-canary-4f9a1c77e2b05d"
NOWHERE = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for vendor, known in vendors().items():
        monkeypatch.delenv(f"{vendor.upper()}_BASE_URL", raising=False)
        for variable in known["keys"]:
            monkeypatch.delenv(variable, raising=False)
    for vendor in ("OLLAMA", "VLLM"):
        monkeypatch.setenv(f"{vendor}_BASE_URL", NOWHERE)


@pytest.fixture
def init(capsys):
    """A function that runs `ultrapar init` with these words and returns exit code and output."""

    def call(*words):
        code = main(["init", *words])
        out, err = capsys.readouterr()
        assert CANARY not in out + err
        return code, out + err

    return call


def read(name="pool.toml"):
    return load_pool(name, environ=os.environ, overrides=Overrides())


def test_pool_has_the_providers_of_the_keys_in_the_environment(init, monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    monkeypatch.setenv("GEMINI_API_KEY", CANARY)
    with ScriptedServer() as server:
        server.served = ["Org/A", "b:8b"]
        monkeypatch.setenv("OLLAMA_BASE_URL", server.base_url)
        code, said = init()
        assert [one.method for one in server.requests] == ["GET"]
    assert code == 0, said
    pool = read()
    anthropic, google = (vendors()[one]["model"] for one in ("anthropic", "google"))
    assert pool.models == (
        f"anthropic/{anthropic}",
        f"google/{google}",
        "ollama/Org/A",
        "ollama/b:8b",
    )
    assert pool.rate_mode == "adaptive"
    assert said.splitlines() == [
        f"pool.toml lists {', '.join(pool.models)}",
        "anthropic sends ANTHROPIC_API_KEY to api.anthropic.com",
        "google sends GEMINI_API_KEY to generativelanguage.googleapis.com",
        "to check it: ultrapar check --pool pool.toml; to use it: pytest --ultrapar-pool pool.toml",
    ]
    assert CANARY not in (tmp_path / "pool.toml").read_text()


def test_pool_has_the_named_models(init, tmp_path):
    code, said = init("--model", "openai/gpt-5-mini", "--model", f"{NOWHERE}#m", "other.toml")
    assert code == 0, said
    assert (tmp_path / "other.toml").read_text().replace('prices = "genai-prices"\n', "") == (
        'schema = 1\n\n[pool]\nrate_mode = "adaptive"\n\n'
        '[[provider]]\nname = "openai"\napi = "openai"\nbase_url = "https://api.openai.com/v1"\n'
        'keys = [{ name = "key0", env = "OPENAI_API_KEY" }]\n'
        'parameters = { max_tokens = "max_completion_tokens" }\n\n'
        '[[provider.model]]\nname = "openai/gpt-5-mini"\n'
        'instances = [{ name = "gpt-5-mini", api_name = "gpt-5-mini" }]\n\n'
        f'[[provider]]\nname = "localhost:1"\napi = "openai"\nbase_url = "{NOWHERE}"\n'
        'keys = [{ name = "key0" }]\n\n'
        '[[provider.model]]\nname = "localhost:1/m"\ninstances = [{ name = "m", api_name = "m" }]\n'
    )


def test_existing_file_is_not_changed(init, tmp_path):
    (tmp_path / "pool.toml").write_text("mine")
    code, said = init("--model", "openai/m")
    assert (code, (tmp_path / "pool.toml").read_text()) == (4, "mine")
    assert "pool.toml: exists and was not changed; choose another name" in said


def test_error_without_any_key_says_what_to_do(init, tmp_path):
    code, said = init()
    assert code == 4
    assert "--model: is required (for example openai/gpt-5-mini): no key for a known vendor" in said
    code, said = init("--model", f"openai/{CANARY}")
    assert code == 4
    assert list(tmp_path.iterdir()) == []


def test_server_that_names_its_model_by_a_path_is_in_the_pool(init, monkeypatch):
    with ScriptedServer() as server:
        server.served = ["two words", "a\x1b[31m\n", "/models/a.gguf", "odd@name", "x" * 999]
        monkeypatch.setenv("VLLM_BASE_URL", server.base_url)
        assert init()[0] == 0
    (model,) = read().providers[0].models
    assert (model.name, model.instances[0].api_name) == ("vllm/models/a.gguf", "/models/a.gguf")


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\n\r\nhello", b"HTTP/1.1 200 OK\r\n\r\n{}", b"x"]
)
def test_a_port_without_a_model_server_is_ignored(init, monkeypatch, answer):
    with ScriptedServer() as server:
        monkeypatch.setattr(server, "_answer", lambda peer, _: peer.send(answer))
        monkeypatch.setenv("VLLM_BASE_URL", server.base_url)
        assert init()[0] == 4


def test_check_also_works_without_a_pool(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with ScriptedServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        code = main(["check", "--model", "openai/gpt-5-mini", "--model", server.base_url])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert CANARY not in out + err
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("ok")] == [
        ["ok", "openai/gpt-5-mini/key0"],
        ["ok", f"localhost:{server.port}/localhost:{server.port}/key0"],
    ]
    assert main(["check"]) == 4


def test_server_that_never_ends_its_answer_is_abandoned():
    async def drip(peer, _request):
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n{")
        while True:
            await peer.send(b" ")
            await asyncio.sleep(0.01)

    with RawServer(drip) as server, pytest.raises(ConfigError, match="does not list models"):
        served_models(f"http://127.0.0.1:{server.port}/v1", timeout_s=0.2)
