"""What several unit tests begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_ultrapar.pool.config import Overrides, load_pool
from pytest_ultrapar.pool.model import Pool


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    """Loads a pool file of a given text, named `pool.toml` in messages; nothing is in its way."""
    monkeypatch.chdir(tmp_path)

    def loaded(text: str, environ: Mapping[str, str] | None = None, **overrides: Any) -> Pool:
        (tmp_path / "pool.toml").write_text(text, encoding="utf-8")
        return load_pool("pool.toml", environ=environ or {}, overrides=Overrides(**overrides))

    return loaded


@pytest.fixture(scope="session")
def stats() -> ModuleType:
    """scipy's statistics. Importing them takes a second, which all who collect would wait."""
    return import_module("scipy.stats")
