"""What several unit tests begin with."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.pool.config import Overrides, load_pool
from pytest_ultrapar.pool.model import Pool


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Pool]:
    """Loads a pool file of a given text, named `pool.toml` in messages; nothing is in its way."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str) -> Pool:
        (tmp_path / "pool.toml").write_text(text, encoding="utf-8")
        return load_pool("pool.toml", environ={}, overrides=Overrides())

    return loaded


@pytest.fixture
def ultrapar(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """`ultrapar WORDS`: its exit code, and what it says on stdout and on stderr."""

    def call(*words: str) -> tuple[object, str, str]:
        try:
            code: object = cli.main(words)
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture(scope="session")
def stats() -> ModuleType:
    """scipy's statistics. Importing them takes a second, which all who collect would wait."""
    return import_module("scipy.stats")
