"""Empty tests as people write them: one parameter and no fixture. Run without the plugin."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many items as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


def test_plain(number: int) -> None:
    """Nothing to do."""
    assert number >= 0
