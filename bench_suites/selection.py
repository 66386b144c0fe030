"""The values that a phase runs with: its own values, or those that the command line names."""

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
"""The prompt types of phase 5.5. The other phases without flaws use only the last one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection that the command line makes.

    Attributes:
        task_types: The named task types, by default all.
        flaws: The flaws of phase 5.3; empty if only prompt types without a flaw were named.
        severities: How much of a plan a flaw changes.
        named_prompt_types: Prompt types without a flaw; None if no prompt type was named, empty
            if only flawed types were named.
        named_difficulties: Empty if no difficulty was named.
        named_rates: Empty if no rate was named.
    """

    task_types: tuple[str, ...]
    flaws: tuple[str, ...]
    severities: tuple[str, ...]
    named_prompt_types: tuple[str, ...] | None
    named_difficulties: tuple[str, ...]
    named_rates: tuple[float, ...]

    def prompt_types(self, *own: str) -> Sequence[str]:
        """The prompt types of a phase without flaws: the named ones, by default its own."""
        return own if self.named_prompt_types is None else self.named_prompt_types

    def difficulties(self, *own: str) -> Sequence[str]:
        """The named difficulties, by default the phase's own."""
        return self.named_difficulties or own

    def rates(self, *own: float) -> Sequence[float]:
        """The named success rates of tools, by default the phase's own."""
        return self.named_rates or own


def parametrize_cells(
    metafunc: pytest.Metafunc,
    *,
    prompt_types: Sequence[str] = ("optimal",),
    difficulties: Sequence[str] = ("easy",),
    rates: Sequence[float] = (0.8,),
) -> None:
    """Parametrize a phase without flaws by task type, and by these values or the named values."""
    chosen = selection(metafunc.config)
    metafunc.parametrize("task_type", chosen.task_types)
    metafunc.parametrize("prompt_type", chosen.prompt_types(*prompt_types))
    metafunc.parametrize("difficulty", chosen.difficulties(*difficulties))
    metafunc.parametrize("tool_success_rate", chosen.rates(*rates))


def n_prompt_types(config: pytest.Config) -> int | None:
    """The number of prompt types of the named phases; None if no phase is named.

    Each flaw of 5.3 is a prompt type.

    Raises:
        pytest.UsageError: As for `selection`.
    """
    phases = phases_named(config)
    if not phases:
        return None
    chosen = selection(config)
    own = (OF_55 if phase == "phase55" else OF_55[-1:] for phase in phases if phase != "phase53")
    sound = {name for names in own for name in chosen.prompt_types(*names)}
    return len(sound) + ("phase53" in phases) * len(chosen.flaws)


def selection(config: pytest.Config) -> Selection:
    """The selection that the command line makes. It is read once.

    Raises:
        pytest.UsageError: A name or number is not allowed; the message lists the allowed ones.
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
    """The values of an option that may be repeated and may list several values with commas."""
    given: Iterable[str] | None = config.getoption(option)
    if given is None:
        return ()
    words = [word.strip() for text in given for word in text.split(",")]
    found = tuple(dict.fromkeys(word for word in words if word))
    if not found:
        # An empty value may come from an unset variable in a script. It must not select everything.
        msg = f"{option} names nothing (got {','.join(given)!r}); omit it to use the default"
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
    from pytest_ultrapar.pool.field_checks import did_you_mean  # noqa: PLC0415 - only for this message

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
    """Refuse flawed prompt types that `--flaw-set` omits: the two options contradict each other."""
    outside = [PREFIX + name for name in asked if named and name not in named]
    if outside:
        msg = (
            f"--prompt-type {', '.join(outside)} is not among the flaws of --flaw-set "
            f"({', '.join(named)}); choose flaws with only one of these options"
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
