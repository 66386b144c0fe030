"""The cost of pytest alone: 12,200 empty tests with as many parameters as the phases have.

Run them without a pool. `python -m benchmarks.overhead collection` uses them for comparison.
"""

from __future__ import annotations

import pytest

SIZES = {
    "model": 8,
    "task_type": 5,
    "prompt_type": 1,
    "difficulty": 1,
    "tool_success_rate": 1,
    "cell": 5,
    "repeat": 61,
}


@pytest.fixture
def episode() -> str:
    """Replace the prefetched fixture of a case."""
    return "the answer"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize with values like `name_1`, which resemble the words of the phases."""
    for name, size in SIZES.items():
        metafunc.parametrize(name, [f"{name}_{number}" for number in range(size)])


def test_empty_cell(  # noqa: PLR0917 - pytest passes them by name
    episode: str,
    model: str,
    task_type: str,
    prompt_type: str,
    difficulty: str,
    tool_success_rate: str,
    cell: str,
    repeat: str,
) -> None:
    """Do nothing."""
    assert episode, (model, task_type, prompt_type, difficulty, tool_success_rate, cell, repeat)
