"""What the environment and the command line say, typed, and which of them wins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_ultrapar.pool.fields import (
    PORT,
    PROCESS_NUM,
    REPEATS,
    WORKERS,
    Bounds,
    Location,
    check_word,
    shown,
)
from pytest_ultrapar.pool.model import EffectiveValue, RateMode

if TYPE_CHECKING:
    from collections.abc import Sequence


# Eighteen digits are more than any bound allows and few enough for int() and for messages.
_FORM = re.compile(r"(-?[0-9]{1,18})(?:x(-?[0-9]{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repetitions of each cell.

    Attributes:
        n: Repetitions, >= 1.
        n_first: Only cells with one of so many first values of the parameter that the suite's mark
            names, >= 1; None takes all.
    """

    n: int
    n_first: int | None = None

    @property
    def setting(self) -> int | str:
        """As the user writes it: 20, or `20x3`."""
        return self.n if self.n_first is None else f"{self.n}x{self.n_first}"


def parse_repeats(location: Location, text: str) -> Repeats:
    """The repetitions that a text of the form `N` or `NxM` asks for.

    Args:
        location: Where the text stands, for the message.
        text: What the user wrote, without blanks around it.

    Raises:
        ConfigError: It has another form, or a number is out of its bounds.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        location.refuse(
            'must be a number of repetitions such as "20", or "20x3" for the first 3 values of the '
            f"parameter that a suite counts (got {shown(text)})"
        )
    least, most = int(REPEATS.at_least or 1), int(REPEATS.at_most)
    n = int(found[1])
    if not least <= n <= most:
        location.refuse(f"must be between {least} and {most} (got {shown(text)})")
    if found[2] is None:
        return Repeats(n)
    n_first = int(found[2])
    if not least <= n_first <= most:
        location.refuse(f"must have between {least} and {most} after the x (got {shown(text)})")
    return Repeats(n, n_first)


MAX_PORTS = 1_000
_ENTRY_CHARS = 12
"""What is longer is no port and not shown: `ports_env` may name a key's variable by mistake."""


def parse_ports(location: Location, text: str) -> tuple[int, ...]:
    """The ports of a comma-separated list, in its order; blanks around an entry do not matter.

    Raises:
        ConfigError: An entry is not a number, out of range or there twice.
    """
    ports = []
    for entry in (part.strip() for part in text.split(",")):
        # isdecimal() alone admits digits of other scripts, which int() would accept too.
        if not (entry.isascii() and entry.isdecimal() and len(entry) <= _ENTRY_CHARS):
            found = shown(entry) if len(entry) <= _ENTRY_CHARS else "a longer text"
            location.refuse(f'must be a list of ports such as "8001,8002" (got {found} in it)')
        ports.append(int(entry))
    return check_ports(location, ports)


def check_ports(location: Location, ports: Sequence[int]) -> tuple[int, ...]:
    """The ports themselves, all between 1 and 65535 and different.

    Raises:
        ConfigError: There is none, one is out of range, one is there twice, or there are too many.
    """
    if not ports:
        location.refuse("must name at least one port (got none)")
    if len(ports) > MAX_PORTS:
        location.refuse(f"must name at most {MAX_PORTS} ports (got {len(ports)})")
    for index, port in enumerate(ports):
        PORT.check(location.item(index), port)
        if port in ports[:index]:
            location.item(index).refuse(f"names port {port} a second time")
    return tuple(ports)


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


def _place(variable: str) -> Location:
    return Location("environment", variable)


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


@dataclass(frozen=True, slots=True)
class Sources:
    """Command line, environment and file of one load.

    Attributes:
        overrides: What the command line says.
        environ: All variables, since `ports_env` may name any.
        environment: The program's own variables, typed.
        file_name: How origins call the pool file.
        effective: The values noted so far.
    """

    overrides: Overrides
    environ: Mapping[str, str]
    environment: Environment
    file_name: str
    effective: list[EffectiveValue] = field(default_factory=list)

    def note(self, name: str, value: Setting, origin: str | None = None) -> None:
        """Note a value in force, by default one of the file; None is nothing to note."""
        if value is not None:
            self.effective.append(EffectiveValue(name, value, origin or self.file_name))

    def max_workers(self, file: int | None) -> EffectiveValue:
        """The bound on requests in flight over the whole pool; None is unlimited."""
        return resolve(
            "max_workers",
            command_line=self.overrides.max_workers,
            environment=self.environment.max_workers,
            file=file,
            default=None,
            file_name=self.file_name,
        )

    def rate_mode(self, file: str | None) -> EffectiveValue:
        """The rate mode in force, `fixed` unless somebody says otherwise."""
        return resolve(
            "rate_mode",
            command_line=self.overrides.rate_mode,
            environment=self.environment.rate_mode,
            file=file,
            default="fixed",
            file_name=self.file_name,
        )
