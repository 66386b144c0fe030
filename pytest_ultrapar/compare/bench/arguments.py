"""Check the arguments of `ultrapar bench` before the first mode runs. All functions are pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.field_checks import did_you_mean
from pytest_ultrapar.pool.settings import MODES, ONE_AT_A_TIME, Options

if TYPE_CHECKING:
    from collections.abc import Sequence


_OTHER_CASES = "it selects cases by earlier results, but all modes must run the same cases"
_NOTHING_RUNS = "pytest runs no cases with it; to use it, run pytest directly"
_ONE_FILE = "each mode would overwrite the previous mode's file"
_ONE_RUN = "a gate checks a single run; run ultrapar gate DIR after the bench"
_ON_THE_COMMAND_LINE = {
    "--ultrapar-mode": "specify the modes with --modes",
    "--ultrapar-out": "specify the directory with --out DIR; each mode gets a subdirectory of it",
    **dict.fromkeys(
        (
            *("--collect-only", "--collectonly", "--co", "--ultrapar-plan", "--setup-plan"),
            *("--setupplan", "--fixtures", "--funcargs", "--fixtures-per-test", "--markers"),
            *("--cache-show", "--help", "-h", "--version", "-V"),
        ),
        _NOTHING_RUNS,
    ),
}
"""Options to refuse, each with the reason: `ultrapar bench` sets them itself, or they keep pytest
from running any case. They are named as on the command line, without `=VALUE`."""
FROM_CONFIGURATION = {
    "lf": ("--lf", _OTHER_CASES),
    "ultrapar_only": ("--ultrapar-only", _OTHER_CASES),
    "stepwise": ("--stepwise", _OTHER_CASES),
    "stepwise_skip": ("--stepwise-skip", _OTHER_CASES),
    "stepwise_reset": ("--stepwise-reset", _OTHER_CASES),
    "setuponly": ("--setup-only", _NOTHING_RUNS),
    "ultrapar_resume": ("--ultrapar-resume", "every mode starts a new run"),
    "ultrapar_baseline": (
        "--ultrapar-baseline",
        "to run all cases serially, add serial to --modes",
    ),
    "ultrapar_gate": ("--ultrapar-gate", _ONE_RUN),
    "ultrapar_gate_baseline": ("--ultrapar-gate-baseline", _ONE_RUN),
    "ultrapar_gate_undecided": ("--ultrapar-gate-undecided", _ONE_RUN),
    "xmlpath": ("--junit-xml", _ONE_FILE),
    "log_file": ("--log-file", _ONE_FILE),
    "report_log": ("--report-log", _ONE_FILE),
    "htmlpath": ("--html", _ONE_FILE),
    "benchmark_json": ("--benchmark-json", _ONE_FILE),
}
"""More options to refuse, by pytest's internal names for them. They are refused wherever they are
set: on the command line, in `addopts` or in `PYTEST_ADDOPTS`."""


def parse_modes(text: str) -> tuple[str, ...]:
    """Parse a list of modes such as `serial,ultra`, and return the modes in the given order.

    Raises:
        ConfigError: The list is empty, or contains an unknown mode or the same mode twice.
    """
    modes = tuple(word.strip() for word in text.split(","))
    for mode in modes:
        if mode not in MODES:
            refuse(
                f"--modes {text!r}: {mode!r} is not a mode; allowed: {', '.join(MODES)}, each "
                f"at most once, separated by commas{did_you_mean(mode.lower(), MODES)}"
            )
    twice = next((mode for mode in modes if modes.count(mode) > 1), None)
    if twice is not None:
        refuse(f"--modes {text!r} names {twice} twice; list each mode once")
    return modes


def check_passed_on(passed_on: Sequence[str], *, has_pool: bool) -> None:
    """Check that the suite comes first, and refuse options that `ultrapar bench` does not allow.

    Args:
        passed_on: The suite and pytest's options.
        has_pool: Whether `--pool` was given.

    Raises:
        ConfigError: The suite is not the first argument, or an option is not allowed.
    """
    if not passed_on or passed_on[0].startswith("-"):
        found = f"found {passed_on[0]!r} first" if passed_on else "no argument is given"
        refuse(
            f"put the suite before pytest's options ({found}), for example: ultrapar bench "
            "bench_suites/phase53 --pool pool.toml --modes serial,ultra -n 2"
        )
    refused = _ON_THE_COMMAND_LINE | ({"--ultrapar-pool": "--pool is given"} if has_pool else {})
    for argument in passed_on:
        option = argument.partition("=")[0]
        if option in refused:
            refuse(f"{option} cannot be used with ultrapar bench: {refused[option]}")


def pytest_arguments(passed_on: Sequence[str], *, mode: str, pool: str | None) -> list[str]:
    """Return pytest's arguments for one mode, except for the option that sets the run's directory.

    The option for the policy is passed on only to modes that use a policy.
    """
    arguments = list(passed_on)
    if mode in ONE_AT_A_TIME:
        arguments = _without(arguments, Options.policy.option)
    if pool is not None:
        arguments.append(f"--ultrapar-pool={pool}")
    return [*arguments, f"--ultrapar-mode={mode}"]


def _without(arguments: Sequence[str], option: str) -> list[str]:
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == option:
            next(rest, None)
        elif not argument.startswith(f"{option}="):
            kept.append(argument)
    return kept
