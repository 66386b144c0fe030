"""Empty tests in the usual form: one parameter and no fixture. Run them without the plugin."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the requested number of items."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


def test_plain(number: int) -> None:
    """Do nothing."""
    assert number >= 0
