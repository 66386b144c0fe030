"""Fixtures that several files of unit tests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.store.run_directory import RunDirectory
from tests.unit.finished_run import run_of_seven


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    """Load a pool from a text; messages call the file `pool.toml`."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str, environ: Mapping[str, str] | None = None, **overrides: Any) -> Pool:
        (tmp_path / "pool.toml").write_text(text, encoding="utf-8")
        return load_pool("pool.toml", environ=environ or {}, overrides=Overrides(**overrides))

    return loaded


@pytest.fixture(scope="session")
def stats() -> ModuleType:
    """`scipy.stats`, imported here because the import adds a second to collection."""
    return import_module("scipy.stats")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of seven cases with different outcomes. It has no tables yet."""
    return run_of_seven(tmp_path / "out")


@pytest.fixture
def ultrapar(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command; return its exit code, standard output and standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = cli.main(words)
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def refused(ultrapar: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Call the command, which must refuse its input; return its standard error."""

    def call(*words: str) -> str:
        code, said, error = ultrapar(*words)
        assert (code, said) == (4, "")
        return error

    return call
