"""The pool file as a file: what is wrong with it before any field means anything."""

import hashlib
import os

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import Overrides, load_pool
from tests.unit.pool_texts import simulated


def refusal_of(path):
    with pytest.raises(ConfigError) as refusal:
        load_pool(path, environ={}, overrides=Overrides())
    return str(refusal.value)


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_missing_file_is_refused():
    assert refusal_of("pool.toml") == "pool.toml: there is no such file"


def test_directory_is_refused(tmp_path):
    (tmp_path / "pools").mkdir()

    assert refusal_of("pools") == "pools: cannot be read (it is a directory)"


def test_device_or_pipe_is_refused_without_reading_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for path in ("/dev/zero", "pipe"):
        assert refusal_of(path) == f"{path}: cannot be read (it is no regular file)"


def test_file_below_a_file_is_refused_with_the_systems_reason(tmp_path):
    (tmp_path / "pool.toml").touch()

    assert refusal_of("pool.toml/x") == "pool.toml/x: cannot be read (Not a directory)"


def test_path_that_no_system_knows_is_refused():
    assert refusal_of("pool\0toml") == "pool\0toml: cannot be read (the path is malformed)"


def test_file_above_one_mebibyte_is_refused(tmp_path):
    (tmp_path / "pool.toml").write_text(simulated() + "#" * 1024 * 1024, encoding="utf-8")

    assert refusal_of("pool.toml") == "pool.toml: must have at most 1048576 bytes (it has more)"


def test_file_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    (tmp_path / "pool.toml").write_bytes(b"schema = 1\n# caf\xe9\n")

    assert refusal_of("pool.toml") == "pool.toml: must be UTF-8 (line 2 is not)"


def test_file_with_byte_order_mark_and_crlf_loads(tmp_path):
    text = simulated().replace("\n", "\r\n")
    (tmp_path / "pool.toml").write_text(text, encoding="utf-8-sig", newline="")

    assert load_pool("pool.toml", environ={}, overrides=Overrides()).models == ("echo",)


def test_pool_knows_its_file_as_given_and_the_digest_of_its_bytes(tmp_path):
    (tmp_path / "pool.toml").write_text(simulated(), encoding="utf-8")

    pool = load_pool("./pool.toml", environ={}, overrides=Overrides())

    assert pool.path == "./pool.toml"
    assert pool.digest == hashlib.sha256(simulated().encode()).hexdigest()
