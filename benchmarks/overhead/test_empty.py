"""The cost of pytest alone: empty tests with the parameters of the cases in `test_overhead.py`.

Run them without a pool. `python -m benchmarks.overhead memory` uses them for comparison.
"""

from __future__ import annotations

import pytest

MODELS = ["echo"]
REPEATS = [0]


@pytest.fixture
def episode() -> str:
    """Replace the prefetched fixture of a case."""
    return "the answer"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the requested number of items, including the parameters that the plugin adds."""
    metafunc.parametrize("model", MODELS)
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))
    metafunc.parametrize("repeat", REPEATS, ids=[f"r{number}" for number in REPEATS])


def test_empty(episode: str, model: str, number: int, repeat: int) -> None:
    """Do nothing."""
    assert episode, (model, number, repeat)
