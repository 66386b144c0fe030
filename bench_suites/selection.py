"""What of a phase is asked for: its own values, or those that the command line names instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bench_suites import workflow
from bench_suites.phases import phases_named
from bench_suites.workflow.flaw import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_key = pytest.StashKey["Selection"]()
OF_55 = ("baseline", "cot", "optimal")
"""The prompt types of phase 5.5; the other phases without flaws have the last one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The command line's wishes.

    Attributes:
        task_types: Those named, else all.
        flaws: What phase 5.3 breaks plans with; empty when only sound prompts were named.
        severities: How much of a plan they touch.
        named_prompt_types: Prompt types without a flaw; None when no prompt type was named, empty
            when only flawed ones were.
        named_difficulties: Empty when none was named.
        named_rates: Empty when none was named.
    """

    task_types: tuple[str, ...]
    flaws: tuple[str, ...]
    severities: tuple[str, ...]
    named_prompt_types: tuple[str, ...] | None
    named_difficulties: tuple[str, ...]
    named_rates: tuple[float, ...]

    def prompt_types(self, *own: str) -> Sequence[str]:
        """The prompt types of a phase without flaws: those named, else its own."""
        return own if self.named_prompt_types is None else self.named_prompt_types

    def difficulties(self, *own: str) -> Sequence[str]:
        """The difficulties named, else the phase's own."""
        return self.named_difficulties or own

    def rates(self, *own: float) -> Sequence[float]:
        """The success rates of tools that were named, else the phase's own."""
        return self.named_rates or own


def parametrize_cells(
    metafunc: pytest.Metafunc,
    *,
    prompt_types: Sequence[str] = ("optimal",),
    difficulties: Sequence[str] = ("easy",),
    rates: Sequence[float] = (0.8,),
) -> None:
    """The cells of a phase without flaws: task types x these, or what was named instead."""
    chosen = selection(metafunc.config)
    metafunc.parametrize("task_type", chosen.task_types)
    metafunc.parametrize("prompt_type", chosen.prompt_types(*prompt_types))
    metafunc.parametrize("difficulty", chosen.difficulties(*difficulties))
    metafunc.parametrize("tool_success_rate", chosen.rates(*rates))


def n_prompt_types(config: pytest.Config) -> int | None:
    """How many prompt types the named phases have, each flaw of 5.3 being one; None without any.

    Raises:
        pytest.UsageError: As `selection`.
    """
    phases = phases_named(config)
    if not phases:
        return None
    chosen = selection(config)
    own = (OF_55 if phase == "phase55" else OF_55[-1:] for phase in phases if phase != "phase53")
    sound = {name for names in own for name in chosen.prompt_types(*names)}
    return len(sound) + ("phase53" in phases) * len(chosen.flaws)


def selection(config: pytest.Config) -> Selection:
    """What the command line selects, read once.

    Raises:
        pytest.UsageError: A name or number is not allowed; the message lists what is.
    """
    found = config.stash.get(_key, None)
    if found is None:
        found = config.stash[_key] = _read(config)
    return found


def _read(config: pytest.Config) -> Selection:
    prompt_types = _words(config, "--prompt-type")
    allowed = (*workflow.PROMPT_TYPES, *(PREFIX + name for name in workflow.FLAWS))
    _check("--prompt-type", prompt_types, allowed)
    named_flaws = _flaws(_words(config, "--flaw-set"))
    flaws = named_flaws or workflow.flaw_set("core")
    named: tuple[str, ...] | None = None
    if prompt_types:
        flaws = tuple(w.removeprefix(PREFIX) for w in prompt_types if w.startswith(PREFIX))
        named = tuple(word for word in prompt_types if not word.startswith(PREFIX))
        _check_agree(flaws, named_flaws)
    return Selection(
        task_types=_named(config, "--task-type", workflow.TASK_TYPES) or workflow.TASK_TYPES,
        flaws=flaws,
        severities=_named(config, "--flaw-severity", workflow.SEVERITIES) or ("severe",),
        named_prompt_types=named,
        named_difficulties=_named(config, "--difficulty", workflow.DIFFICULTIES),
        named_rates=tuple(dict.fromkeys(map(_rate, _words(config, "--tool-success-rate")))),
    )


def _words(config: pytest.Config, option: str) -> tuple[str, ...]:
    """The values of an option that may be repeated and may list several with commas."""
    given: Iterable[str] | None = config.getoption(option)
    if given is None:
        return ()
    words = [word.strip() for text in given for word in text.split(",")]
    found = tuple(dict.fromkeys(word for word in words if word))
    if not found:
        # What an unset variable of a script leaves; it must not select everything.
        msg = f"{option} names nothing (got {','.join(given)!r}); leave it out for the default"
        raise pytest.UsageError(msg)
    return found


def _named(config: pytest.Config, option: str, allowed: Sequence[str]) -> tuple[str, ...]:
    words = _words(config, option)
    _check(option, words, allowed)
    return words


def _check(option: str, words: Sequence[str], allowed: Sequence[str]) -> None:
    for word in words:
        if word not in allowed:
            listed = f"allowed are {', '.join(allowed)}"
            msg = f"{option} {word!r} is unknown{_meant(word, allowed)} {listed}"
            raise pytest.UsageError(msg)


def _meant(word: str, allowed: Sequence[str]) -> str:
    from pytest_ultrapar.pool.fields import did_you_mean  # noqa: PLC0415 - only for this message

    for given in (word, word.removeprefix(PREFIX)):
        if question := did_you_mean(given.lower(), allowed, cutoff=0.75):
            return question
    return ";"


def _flaws(words: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for word in words:
        if word in workflow.FLAW_SETS:
            found += workflow.flaw_set(word)
            continue
        name = word.removeprefix(PREFIX)
        if name not in workflow.FLAWS:
            _check("--flaw-set", [word], (*workflow.FLAW_SETS, *workflow.FLAWS))
        found.append(name)
    return tuple(dict.fromkeys(found))


def _check_agree(asked: Sequence[str], named: Sequence[str]) -> None:
    """Refuse flawed prompt types that `--flaw-set` leaves out: either would be overridden."""
    outside = [PREFIX + name for name in asked if named and name not in named]
    if outside:
        msg = (
            f"--prompt-type {', '.join(outside)} is not among the flaws of --flaw-set "
            f"({', '.join(named)}); name the flaws with one of the two"
        )
        raise pytest.UsageError(msg)


def _rate(word: str) -> float:
    try:
        rate = float(word)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        msg = f"--tool-success-rate must be a number from 0 to 1 (got {word!r})"
        raise pytest.UsageError(msg)
    return rate
