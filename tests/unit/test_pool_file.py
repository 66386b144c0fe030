"""Errors of a pool file before any field is read."""

import hashlib
import os

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.unit.pool_texts import simulated


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.toml", "there is no such file"),
        ("pools", "cannot be read (it is a directory)"),
        ("/dev/zero", "cannot be read (it is not a regular file)"),
        ("pipe", "cannot be read (it is not a regular file)"),
        ("large.toml/x", "cannot be read (Not a directory)"),
        ("pool\0toml", "cannot be read (the path is malformed)"),
        ("large.toml", "must not be larger than 1048576 bytes"),
        ("latin.toml", "must be UTF-8 (line 2 is not)"),
    ],
)
def test_unreadable_pool_file_is_refused_with_the_reason(tmp_path, path, message):
    (tmp_path / "pools").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.toml").write_text(simulated() + "#" * 1024 * 1024, encoding="utf-8")
    (tmp_path / "latin.toml").write_bytes(b"schema = 1\n# caf\xe9\n")
    with pytest.raises(ConfigError) as refusal:
        load_pool(path, environ={}, overrides=Overrides())
    assert str(refusal.value) == f"{path}: {message}"


def test_file_with_byte_order_mark_and_crlf_loads(tmp_path):
    text = simulated().replace("\n", "\r\n")
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8-sig", newline="")

    assert load_pool("pool.toml", environ={}, overrides=Overrides()).models == ("echo",)


def test_pool_has_its_path_as_given_and_the_digest_of_its_file(tmp_path):
    (tmp_path / "pool.toml").write_text(simulated(), encoding="utf-8")

    pool = load_pool("./pool.toml", environ={}, overrides=Overrides())

    assert pool.path == "./pool.toml"
    assert pool.digest == hashlib.sha256(simulated().encode()).hexdigest()
