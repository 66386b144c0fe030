"""The option for the number of cases of each test in this suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the suite."""
    parser.addoption(
        "--overhead-cases",
        help="overhead: cases of each test (default: 300)",
        type=int,
        default=300,
    )
