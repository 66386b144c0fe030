"""What the environment and the command line say, typed, and which of them wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_ultrapar.pool.bounds import (
    PROCESS_NUM,
    WORKERS,
    Bounds,
    check_word,
)
from pytest_ultrapar.pool.model import EffectiveValue, RateMode
from pytest_ultrapar.pool.place import Place, shown
from pytest_ultrapar.pool.ports import parse_ports
from pytest_ultrapar.pool.repeats import Repeats, parse_repeats

if TYPE_CHECKING:
    from collections.abc import Mapping

StorageFormat = Literal["parquet", "json"]
Setting = str | int | float | bool | None

RATE_MODES: tuple[RateMode, ...] = ("fixed", "adaptive")
STORAGE_FORMATS: tuple[StorageFormat, ...] = ("parquet", "json")

VARIABLES: Mapping[str, str] = {
    "repeats": "NUM_INSTANCES",
    "storage": "STORAGE_FORMAT",
    "mode": "USE_CONCURRENT",
}
"""Variables whose setting has another name; others are the setting's name in capitals."""

_W = TypeVar("_W", bound=str)
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says about the pool; None was not given.

    Attributes:
        max_workers: `--ultrapar-max-workers`, requests in flight over the whole pool.
        rate_mode: `--ultrapar-rate-mode`, `fixed` or `adaptive`.
    """

    max_workers: int | None = None
    rate_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that the program reads, by their own names; None is unset or empty.

    Attributes:
        num_instances: Repetitions of each cell, as `--ultrapar-repeats`.
        debug_log: Whether workers write a detailed log.
        debug_process_num: The one worker process that `debug_log` is for, counted from 1 as the
            documents count their shards: 1 is `gw0`, or `main` without xdist.
        max_workers: Requests in flight over the whole pool.
        use_concurrent: False means mode `rotate`.
        use_multi_vllm: False takes the first of several ports only.
    """

    rate_mode: RateMode | None = None
    num_instances: Repeats | None = None
    storage_format: StorageFormat | None = None
    debug_log: bool | None = None
    debug_process_num: int | None = None
    max_workers: int | None = None
    use_concurrent: bool | None = None
    use_multi_vllm: bool | None = None
    vllm_ports: tuple[int, ...] | None = None


def read_environment(environ: Mapping[str, str]) -> Environment:
    """The program's variables, typed; a variable that is empty counts as unset.

    Raises:
        ConfigError: A variable has a value that is not allowed; the message names variable, value
            and what is allowed.
    """
    ports = _text(environ, "VLLM_PORTS")
    repeats = _text(environ, "NUM_INSTANCES")
    return Environment(
        rate_mode=_word(environ, "RATE_MODE", RATE_MODES),
        num_instances=parse_repeats(_place("NUM_INSTANCES"), repeats) if repeats else None,
        storage_format=_word(environ, "STORAGE_FORMAT", STORAGE_FORMATS),
        debug_log=_truth(environ, "DEBUG_LOG"),
        debug_process_num=_integer(environ, "DEBUG_PROCESS_NUM", PROCESS_NUM),
        max_workers=_integer(environ, "MAX_WORKERS", WORKERS),
        use_concurrent=_truth(environ, "USE_CONCURRENT"),
        use_multi_vllm=_truth(environ, "USE_MULTI_VLLM"),
        vllm_ports=parse_ports(_place("VLLM_PORTS"), ports) if ports else None,
    )


def resolve(
    name: str,
    *,
    command_line: Setting,
    environment: Setting,
    file: Setting,
    default: Setting,
    file_name: str = "pool.toml",
) -> EffectiveValue:
    """The value in force and its origin: command line over environment over file over default.

    Args:
        name: The setting, such as `max_workers`; names its option and its variable in the origin.
        command_line: None when the option was not given; the same for the next two.
        environment: The variable's value as `read_environment` typed it.
        file: The value in the pool file.
        default: In force when nobody says anything.
        file_name: How the origin calls the pool file.
    """
    if command_line is not None:
        return EffectiveValue(name, command_line, f"command line {option_of(name)}")
    if environment is not None:
        return EffectiveValue(name, environment, f"environment {variable_of(name)}")
    if file is not None:
        return EffectiveValue(name, file, file_name)
    return EffectiveValue(name, default, "default")


def option_of(name: str) -> str:
    """The option of a setting: `max_workers` is `--ultrapar-max-workers`."""
    return "--ultrapar-" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable of a setting: `repeats` is `NUM_INSTANCES`."""
    return VARIABLES.get(name, name.upper())


def _place(variable: str) -> Place:
    return Place("environment", variable)


def _text(environ: Mapping[str, str], variable: str) -> str | None:
    return environ.get(variable, "").strip() or None


def _word(environ: Mapping[str, str], variable: str, allowed: tuple[_W, ...]) -> _W | None:
    text = _text(environ, variable)
    return None if text is None else check_word(_place(variable), text.lower(), allowed)


def _integer(environ: Mapping[str, str], variable: str, bounds: Bounds) -> int | None:
    text = _text(environ, variable)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        _place(variable).refuse(f"must be an integer {bounds} (got {shown(text)})")
    return bounds.check(_place(variable), int(text))


def _truth(environ: Mapping[str, str], variable: str) -> bool | None:
    text = _text(environ, variable)
    if text is None:
        return None
    if text.lower() not in _TRUE | _FALSE:
        _place(variable).refuse(f'must be "true" or "false" (got {shown(text)})')
    return text.lower() in _TRUE
