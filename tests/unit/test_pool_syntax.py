"""What is no TOML is refused by one message that shows the line and hides secrets."""

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool

REFUSED = [
    pytest.param(
        "schema = 1\n[pool\nworkers = 3\n",
        "line 2 is not TOML: Expected ']' at the end of a table declaration: [pool",
        id="toml",
    ),
    pytest.param(
        "schema = 1\nworkers =", "line 2 is not TOML: Invalid value: workers =", id="toml_end"
    ),
    pytest.param(
        'schema = 1\nkeys = [{ name = "key0", api_key = "sk-abcdefgh }]\n',
        ("line 2 is not TOML: Illegal character '\\n': keys = [{ name = \"key0\", api_key = ***}]"),
        id="toml_secret",
    ),
    pytest.param(
        'schema = 1\nkeys = [{ name = "key0", env = sk-abcdefgh }]\n',
        'line 2 is not TOML: Invalid value: keys = [{ name = "key0", env = ***}]',
        id="toml_secret2",
    ),
    pytest.param(
        'schema = 1\nkeys = [{ name = "key0", env = KEY_0 }]\n',
        'line 2 is not TOML: Invalid value: keys = [{ name = "key0", env = KEY_0 }]',
        id="toml_env",
    ),
    pytest.param(
        "schema = 1\nper_key = { workers = }\n",
        "line 2 is not TOML: Invalid value: per_key = { workers = }",
        id="toml_no_secret",
    ),
    pytest.param(
        'schema = 1\nbase_url = "https://me:pw@host\n',
        "line 2 is not TOML: Illegal character '\\n': base_url = \"https://***@host",
        id="toml_url",
    ),
    pytest.param(
        "schema = 1\nschema = 1\n",
        "line 2 is not TOML: Cannot overwrite a value: schema = 1",
        id="twice",
    ),
    pytest.param("schema = 1\nx = " + "[" * 3000 + "]" * 3000, "is nested too deeply", id="deep"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_pool_syntax_mistake_is_refused_with_one_clear_message(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError) as refusal:
        load_pool("pool.toml", environ={}, overrides=Overrides())

    assert str(refusal.value) == f"pool.toml: {message}"
