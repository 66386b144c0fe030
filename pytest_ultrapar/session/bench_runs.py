"""A pytest plugin for the runs of `ultrapar bench`: refuses options that prevent a comparison."""

from __future__ import annotations

import pytest

from pytest_ultrapar.compare.bench.arguments import FROM_CONFIGURATION


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Check the options as pytest parsed them, from the command line or configuration.

    Raises:
        pytest.UsageError: An option is set that makes it impossible to compare the modes.
    """
    for name, (option, why) in FROM_CONFIGURATION.items():
        if config.getoption(name, None):
            raise pytest.UsageError(
                f"{option} cannot be used with ultrapar bench (nor in addopts): {why}"
            )
