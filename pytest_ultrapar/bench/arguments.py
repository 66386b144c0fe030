"""What `ultrapar bench` was asked for, checked before anything runs; pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pytest_ultrapar.bench.refused_options import ON_THE_COMMAND_LINE
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.options import MODES
from pytest_ultrapar.policy_names import ONE_AT_A_TIME
from pytest_ultrapar.policy_names import OPTION as POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_modes(text: str) -> tuple[str, ...]:
    """The modes of a list such as `serial,ultra`, in its order.

    Raises:
        ConfigError: It is empty, or names one twice or one that there is not.
    """
    modes = tuple(word.strip() for word in text.split(","))
    for mode in modes:
        if mode not in MODES:
            near = difflib.get_close_matches(mode.lower(), MODES, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            msg = (
                f"--modes {text!r}: {mode!r} is no mode; allowed are {', '.join(MODES)}, each once,"
                f" with commas between them{meant}"
            )
            raise ConfigError(msg)
    twice = next((mode for mode in modes if modes.count(mode) > 1), None)
    if twice is not None:
        msg = f"--modes {text!r} names {twice} twice; name each mode once"
        raise ConfigError(msg)
    return modes


def check_passed_on(passed_on: Sequence[str], *, has_pool: bool) -> None:
    """Refuse what pytest must not be told when every mode runs the same cases.

    Args:
        passed_on: The suite and pytest's options.
        has_pool: Whether `--pool` was given.

    Raises:
        ConfigError: No suite is named first, or an option contradicts what bench does.
    """
    if not passed_on or passed_on[0].startswith("-"):
        found = f"found {passed_on[0]!r} first" if passed_on else "there is none"
        msg = (
            f"name the suite before pytest's options ({found}), such as: "
            "ultrapar bench bench_suites/phase53 --pool pool.toml --modes serial,ultra -n 2"
        )
        raise ConfigError(msg)
    refused = ON_THE_COMMAND_LINE | ({"--ultrapar-pool": "--pool names it"} if has_pool else {})
    for argument in passed_on:
        option = argument.partition("=")[0]
        if option in refused:
            msg = f"{option} cannot be used with ultrapar bench: {refused[option]}"
            raise ConfigError(msg)


def pytest_arguments(passed_on: Sequence[str], *, mode: str, pool: str | None) -> list[str]:
    """The command line of pytest for one mode, without a directory.

    A policy is passed on only to modes in which it has a say.
    """
    arguments = list(passed_on)
    if mode in ONE_AT_A_TIME:
        arguments = _without(arguments, POLICY)
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
