"""Options of the benchmark suites, their tables, and pytest's own plugin for testing plugins.

They stand here and not beside the suites: pytest reads options of deeper conftests only for paths
below them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench_suites.selection import selection
from bench_suites.workflow import TASKS
from bench_suites.workflow.prompt_digest import prompt_digest

_OVERHEAD = Path(__file__).parent / "bench_suites" / "overhead"

pytest_plugins = [
    "pytester",
    "bench_suites.documented.plugin",
    "bench_suites.workflow_results.plugin",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the suites' options."""
    group = parser.getgroup("bench_suites", "benchmark suites (bench_suites/)")

    def option(name: str, help_text: str, **settings: Any) -> None:  # noqa: ANN401
        group.addoption(f"--{name}", help=help_text, **settings)

    def names(name: str, help_text: str) -> None:
        option(name, help_text, action="append", metavar="NAMES")

    names(
        "prompt-type",
        "instead of a phase's own: baseline, cot, optimal (5.1, 5.2, 5.4, 5.5), flawed_<flaw> "
        "(5.3); this and the next five may be repeated or list several with commas",
    )
    names("difficulty", "instead of a phase's own: very_easy, easy, medium, hard, very_hard")
    names(
        "task-type",
        "only these: simple_task, basic_task, data_pipeline, api_integration, multi_stage_pipeline",
    )
    names("tool-success-rate", "instead of a phase's own: chance that a tool call succeeds, 0 to 1")
    names("flaw-set", "phase 5.3: core (default), document, all, or names of flaws")
    names(
        "flaw-severity",
        "phase 5.3: how much of a plan a flaw touches: light, medium, severe (default: severe)",
    )
    option("overhead-cases", "overhead: cases per test (default: 300)", type=int, default=300)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what the options of the suites may not say, before anything is collected."""
    selection(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the suite that measures the tool itself to those who name it."""
    if collection_path != _OVERHEAD:
        return None
    start = config.invocation_params.dir
    named = (start / argument.split("::")[0] for argument in config.args)
    return None if any(path.is_relative_to(_OVERHEAD) for path in named) else True


def pytest_ultrapar_data() -> dict[str, str]:
    """What the phases ask depends on the task library and on the prompts' texts and rules.

    Raises:
        pytest.UsageError: The library cannot be read: it was edited, for its generator made it
            right.
    """
    edited = ", ".join(TASKS.edited())
    try:
        data = {"task library": TASKS.digest(), "prompts": prompt_digest()}
    except Exception as error:
        if not edited:
            raise
        msg = f"the task library was edited ({edited}) and cannot be used: {error}"
        raise pytest.UsageError(msg) from error
    return data | ({"edited files of the task library": edited} if edited else {})


def pytest_report_header() -> list[str]:
    """Say so when the task library is not the one that its generator made."""
    return _edited()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it again: with `-q` the header is not shown."""
    for line in _edited():
        terminalreporter.write_line(line)


def _edited() -> list[str]:
    edited = TASKS.edited()
    return [f"workflow: the task library was edited: {', '.join(edited)}"] if edited else []
