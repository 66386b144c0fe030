"""What pytest itself costs: empty tests, parametrised as the cases of `test_overhead.py` are.

Run without a pool. `python -m benchmarks.overhead memory` compares.
"""

from __future__ import annotations

import pytest

MODELS = ["echo"]
REPEATS = [0]


@pytest.fixture
def episode() -> str:
    """Stands where a case has its prefetched fixture."""
    return "the answer"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many items as asked for, with the parameters that a case gets from the plugin too."""
    metafunc.parametrize("model", MODELS)
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))
    metafunc.parametrize("repeat", REPEATS, ids=[f"r{number}" for number in REPEATS])


def test_empty(episode: str, model: str, number: int, repeat: int) -> None:
    """Nothing to do."""
    assert episode, (model, number, repeat)
