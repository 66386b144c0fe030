"""A plugin for runs that `ultrapar bench` starts. It refuses options that prevent a comparison."""

from __future__ import annotations

import pytest

from pytest_ultrapar.compare.bench.arguments import FROM_CONFIGURATION


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Check the options that pytest has parsed from the command line and its configuration.

    Raises:
        pytest.UsageError: An option makes it impossible to compare the modes.
    """
    for name, (option, why) in FROM_CONFIGURATION.items():
        if config.getoption(name, None):
            raise pytest.UsageError(
                f"{option} cannot be used with ultrapar bench, not even in addopts: {why}"
            )
