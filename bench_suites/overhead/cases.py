"""How many cases each test of this suite has: the option, as a plugin of pytest.

The root conftest names it in `pytest_plugins`. Commands that leave the conftests out name it
themselves, see `command.ALONE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare it beside the other suites' options."""
    parser.getgroup("bench_suites", "benchmark suites (bench_suites/)").addoption(
        "--overhead-cases",
        help="overhead: cases per test (default: 300)",
        type=int,
        default=300,
    )
