"""What holds for all tests."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run folders of tests on every core, as if `-n logical --dist worksteal` were given.

    Tests by name, a debugger and `-s` want one process, and a word of the user's goes before. This
    is no `addopts`, which would reach the suites in `bench_suites` too, whose workers and limits
    are their user's to choose.
    """
    option = config.option
    by_name = any(not Path(arg).is_dir() for arg in config.args)
    told = getattr(option, "numprocesses", 0) is not None or option.tx or option.dist != "no"
    watched = option.usepdb or option.trace or option.capture == "no" or option.collectonly
    measured = config.getoption("benchmark_only", default=False)
    if not (by_name or told or watched or measured or hasattr(config, "workerinput")):
        option.numprocesses, option.dist = "logical", "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test; `--benchmark-only` measures, for a second each."""
    if not config.getoption("benchmark_only", True):
        config.option.benchmark_disable = True
