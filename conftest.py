"""Options of the benchmark suites, and pytest's own plugin for testing plugins.

They stand here and not beside the suites: pytest reads options of deeper conftests only for paths
below them.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["pytester", "bench_suites.documented.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the suites' options."""
    group = parser.getgroup("bench_suites", "benchmark suites (bench_suites/)")

    def option(name: str, help_text: str, **settings: Any) -> None:  # noqa: ANN401
        group.addoption(f"--{name}", help=help_text, **settings)

    option(
        "flaw-set",
        "phase 5.3: flaws of the plan, 'core' (default), 'document' or 'all'",
        choices=("core", "document", "all"),
        default="core",
    )
    option(
        "flaw-severity",
        "phase 5.3: how much of a plan a flaw touches (default: severe)",
        choices=("light", "medium", "severe"),
        default="severe",
    )
    option("task-type", "only this task type; may be repeated (default: all five)", action="append")
    option(
        "tool-success-rate",
        "chance that a tool call succeeds, 0 to 1 (default: 0.8)",
        type=float,
        default=0.8,
    )
    option("overhead-cases", "overhead: cases per test (default: 300)", type=int, default=300)
