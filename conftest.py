"""The options and tables of the benchmark suites, and pytest's own plugin for testing plugins.

The options are in this file, since pytest reads options of deeper conftests only for paths below
them.
"""

from __future__ import annotations

import pytest

from bench_suites.phases import phases_named
from pytest_ultrapar.session.options import pool_path

_OF_PHASES = (
    "--prompt-type",
    "--difficulty",
    "--task-type",
    "--tool-success-rate",
    "--flaw-set",
    "--flaw-severity",
)
"""Options that are checked even in a run of other suites."""

pytest_plugins = [
    "pytester",
    "bench_suites.original_scripts.plugin",
    "bench_suites.workflow_results.plugin",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the suites' options."""
    group = parser.getgroup("bench_suites", "benchmark suites (bench_suites/)")

    def names(name: str, help_text: str) -> None:
        group.addoption(f"--{name}", help=help_text, action="append", metavar="NAMES")

    names(
        "prompt-type",
        "prompt types: baseline, cot, optimal (5.1, 5.2, 5.4, 5.5), flawed_<flaw> (5.3) (default: "
        "the phase's own); you may repeat this and the next five options, or separate names by "
        "commas",
    )
    names(
        "difficulty",
        "difficulties: very_easy, easy, medium, hard, very_hard (default: the phase's own)",
    )
    names(
        "task-type",
        "task types: simple_task, basic_task, data_pipeline, api_integration, "
        "multi_stage_pipeline (default: all)",
    )
    names(
        "tool-success-rate",
        "probabilities that a tool call succeeds, from 0 to 1 (default: the phase's own)",
    )
    names("flaw-set", "phase 5.3: core, document, all, or names of flaws (default: core)")
    names(
        "flaw-severity",
        "phase 5.3: how much of a plan a flaw changes: light, medium, severe (default: severe)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse invalid options of the suites before collection."""
    if not phases_named(config) and not any(map(config.getoption, _OF_PHASES)):
        return
    # Imported late: other suites must not wait for the benchmark's modules.
    from bench_suites.library_check import check_library  # noqa: PLC0415
    from bench_suites.selection import selection  # noqa: PLC0415

    chosen = selection(config)
    if not hasattr(config, "workerinput"):
        check_library(config, chosen)


def pytest_ultrapar_prompt_types(config: pytest.Config) -> int | None:
    """The factor of a pool's `multiply_by_prompt_types`."""
    from bench_suites.selection import n_prompt_types  # noqa: PLC0415 - as above

    return n_prompt_types(config)


def pytest_ultrapar_data(config: pytest.Config) -> dict[str, str]:
    """The digests of the task library and the prompts, on which the phases depend.

    Raises:
        pytest.UsageError: The library was edited and is unusable.
    """
    if not phases_named(config):
        return {}
    from bench_suites.workflow import TASKS, LibraryError  # noqa: PLC0415 - as above
    from bench_suites.workflow.prompt_digest import prompt_digest  # noqa: PLC0415

    edited = ", ".join(TASKS.edited())
    try:
        data = {"task library": TASKS.digest(), "prompts": prompt_digest()}
    except LibraryError as error:
        msg = f"the task library was edited ({edited}) and cannot be used: {error}"
        raise pytest.UsageError(msg) from error
    return data | ({"edited files of the task library": edited} if edited else {})


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report an edited task library."""
    return _edited(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Report an edited library again, as `-q` hides the header. Explain why phases lack cases."""
    for line in _edited(config):
        terminalreporter.write_line(line)
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and pool_path(config) is not None:
        phases = phases_named(config)
        if not phases:
            return
        from bench_suites.nothing_selected import reasons  # noqa: PLC0415 - as above
        from bench_suites.selection import selection  # noqa: PLC0415
        from pytest_ultrapar.session.run_config import models  # noqa: PLC0415 - heavy, read already here

        for reason in reasons(phases, selection(config), models(config)):
            terminalreporter.write_line(f"nothing selected: {reason}")


def _edited(config: pytest.Config) -> list[str]:
    if not phases_named(config):
        return []
    from bench_suites.workflow import TASKS  # noqa: PLC0415 - as above

    edited = TASKS.edited()
    return [f"workflow: the task library was edited: {', '.join(edited)}"] if edited else []
