"""How many cases each test of this suite has."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the suite."""
    parser.addoption(
        "--overhead-cases", help="overhead: cases per test (default: 300)", type=int, default=300
    )
