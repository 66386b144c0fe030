"""What holds for all tests."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

# Tests start some two hundred Python processes. Where the environment forbids compiled files, as
# images of containers do, each of them would compile this package anew, which takes 0.6 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_ORDINARY = "not slow and not browser"
"""The selection that `addopts` makes."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run folders of tests on every core, as if `-n logical --dist worksteal` were given.

    Slow ones, too, though they wait half of their time: with three workers on two cores, those that
    start fifteen of their own judge the machine.
    Tests by name, a debugger and `-s` want one process, and a word of the user's goes before. This
    is no `addopts`, which would reach the suites in `bench_suites` too, whose workers and limits
    are their user's to choose.
    """
    option = config.option
    here = Path(__file__).parent
    paths = [config.invocation_params.dir / arg for arg in config.args]
    folders = all(path.is_dir() and path.is_relative_to(here) for path in paths)
    told = getattr(option, "numprocesses", 0) is not None or option.tx or option.dist != "no"
    watched = option.usepdb or option.trace or option.capture == "no" or option.collectonly
    measured = config.getoption("benchmark_only", default=False)
    if folders and not (told or watched or measured or hasattr(config, "workerinput")):
        option.numprocesses, option.dist = "logical", "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test; `--benchmark-only` measures, for a second each.

    Hypothesis draws few examples in the run that `addopts` selects, and all in any other.
    """
    if not config.getoption("benchmark_only", True):
        config.option.benchmark_disable = True
    # pytest reads this file wherever it is pointed at the repository's root, for `pytest-benchmark
    # compare` too, and the root needs no more than the package itself.
    with suppress(ModuleNotFoundError):
        from tests.examples import FULL, QUICK, settings

        if not config.getoption("hypothesis_profile", None):
            settings.load_profile(QUICK if config.option.markexpr == _ORDINARY else FULL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count hypothesis' tests among the slow ones where they draw all of their examples."""
    if config.option.markexpr != _ORDINARY:
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("slow")
