"""Run LLM evaluations in pytest as fast as a pool of API keys allows, and never faster.

Suites import `prefetch` and `cases`. Conftests that assign workers to lanes import `Assignment` and
`Group`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.errors import (
    BadRequestError,
    ConfigError,
    InfraError,
    PromptRefused,
    UltraparError,
)

if TYPE_CHECKING:
    from pytest_ultrapar.apis.reply import Reply, ToolCall
    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.engine.llm import Llm, SyncLlm
    from pytest_ultrapar.session.data_cases import cases
    from pytest_ultrapar.session.graders import grader
    from pytest_ultrapar.session.grading import Grader
    from pytest_ultrapar.session.prefetch import CaseInfo, prefetch

__all__ = [
    "Assignment",
    "BadRequestError",
    "CaseInfo",
    "ConfigError",
    "Grader",
    "Group",
    "InfraError",
    "Llm",
    "PromptRefused",
    "Reply",
    "SyncLlm",
    "ToolCall",
    "UltraparError",
    "cases",
    "grader",
    "prefetch",
]

# Import these only when they are first used, because every pytest run imports this package, even
# without a pool. Also, processes such as the broker and the simulated provider do not need pytest,
# and importing pytest takes 0.09 s.
_LATE = {
    "Assignment": "pytest_ultrapar.broker.assignment",
    "CaseInfo": "pytest_ultrapar.session.prefetch",
    "Grader": "pytest_ultrapar.session.grading",
    "Group": "pytest_ultrapar.broker.assignment",
    "Llm": "pytest_ultrapar.engine.llm",
    "Reply": "pytest_ultrapar.apis.reply",
    "SyncLlm": "pytest_ultrapar.engine.llm",
    "ToolCall": "pytest_ultrapar.apis.reply",
    "cases": "pytest_ultrapar.session.data_cases",
    "grader": "pytest_ultrapar.session.graders",
    "prefetch": "pytest_ultrapar.session.prefetch",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute may be anything
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("pytest-ultrapar")
    if name in _LATE:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
