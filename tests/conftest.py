"""What holds for all tests."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

# Tests start some two hundred Python processes. Where the environment forbids compiled files, as
# images of containers do, each of them would compile this package anew, which takes 0.6 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# pytest reads this file wherever it is pointed at the repository's root, for `pytest-benchmark
# compare` too, and the root needs no more than the package itself.
with suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings

    # A busy machine makes any example slow, and so the drawing of one; what is slow for good is
    # seen in `--durations`.
    settings.register_profile(
        "ultrapar", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("ultrapar")


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test; `--benchmark-only` measures, for a second each."""
    if not config.getoption("benchmark_only", True):
        config.option.benchmark_disable = True
