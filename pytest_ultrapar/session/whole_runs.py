"""A plugin of pytest for the runs of `ultrapar bench`: refuses what modes must not be told."""

from __future__ import annotations

import pytest

from pytest_ultrapar.compare.bench.arguments import FROM_CONFIGURATION


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Look at the options as pytest understood them, wherever they come from.

    Raises:
        pytest.UsageError: Modes could not be compared with one of them.
    """
    for name, (option, why) in FROM_CONFIGURATION.items():
        if config.getoption(name, None):
            raise pytest.UsageError(
                f"{option} cannot be used with ultrapar bench (nor in addopts): {why}"
            )
