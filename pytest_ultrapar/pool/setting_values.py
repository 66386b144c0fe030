"""Read settings from the command line and the environment, using the table of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.field_checks import Location, check_different, check_word, shown
from pytest_ultrapar.pool.model import EffectiveValue
from pytest_ultrapar.pool.number_ranges import PERCENT, PORT, PROCESS_NUM, REPEATS, SHARDS, Bounds
from pytest_ultrapar.pool.settings import (
    SETTINGS,
    Options,
    Ports,
    Repeats,
    Setting,
    Shard,
    WhichLog,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
_N = TypeVar("_N", int, float)
COMMAND_LINE, ENVIRONMENT, DEFAULT = "command line", "environment", "default"
_NOTHING: Mapping[str, object] = MappingProxyType({})
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
# Eighteen digits exceed every bound, and are still few enough for int() and for messages.
_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(
    r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,2})?", re.ASCII | re.IGNORECASE
)
_SHARD = re.compile(r"([0-9]{1,18})/([0-9]{1,18})", re.ASCII)
_REPEATS = re.compile(r"(-?[0-9]{1,18})(?:x(-?[0-9]{1,18}))?", re.ASCII)


class Origin(NamedTuple):
    """The origin of a value.

    Attributes:
        source: `command line`, `environment`, the name of the pool file, or `default`.
        name: The option or the variable; empty for the file and for defaults.
    """

    source: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.name}".rstrip()


def settle(
    given: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    file: Mapping[str, object] = _NOTHING,
    file_name: str = "pool.toml",
) -> Options:
    """Return all settings with their origins. Each value is checked, but not against other values.

    Args:
        given: The parsed options from the command line, by name; None means not given.
        environ: The environment's variables, usually `os.environ`.
        file: The values in the pool file by name, except for the settings that `Sources.resolve`
            resolves.
        file_name: The pool file's name, as origins show it.

    Raises:
        ConfigError: A value is not allowed; the message names the option or variable, the value
            and the allowed values.
    """
    environment = read_environment(environ)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for row in SETTINGS:
        values[row.name], origins[row.name] = resolve(
            row,
            command_line=_of_option(row, given.get(row.name)),
            environment=environment.get(row.name),
            variable=_variable(row, environ),
            file=file.get(row.name),
            file_name=file_name,
        )
    origin = {name: str(one) for name, one in origins.items()}
    number = environment.get("debug_process_num")
    plain = Origin(ENVIRONMENT, Options.debug_log.variable)
    if number is not None and values["debug_log"].is_on and origins["debug_log"] == plain:
        values["debug_log"] = WhichLog(is_on=True, number=number)
        origin["debug_log"] += f" and {Options.debug_process_num.variable}"
    return Options(values, origin)


def effective(options: Options) -> tuple[EffectiveValue, ...]:
    """Return the values in force that the manifest and the header show, with their origins."""
    return tuple(
        EffectiveValue(row.key, getattr(value, "setting", value), options.origin[row.name])
        for row in SETTINGS
        if row.is_recorded and (value := getattr(options, row.name)) is not None
    )


def resolve(
    row: Setting[T],
    *,
    command_line: T | None,
    environment: T | None,
    file: T | None,
    variable: str = "",
    file_name: str = "pool.toml",
) -> tuple[T, Origin]:
    """Return the value in force and its origin.

    The command line overrides the environment, which overrides the file, which overrides the
    default.

    Args:
        row: The setting.
        command_line: The option's value; None if it was not given.
        environment: The variable's value, parsed by `read_environment`; None if it is not set.
        file: The value in the pool file; None if it is not set.
        variable: The name of the variable that is set; by default, `row.variable`.
        file_name: The pool file's name, as origins show it.
    """
    if command_line is not None:
        return command_line, Origin(COMMAND_LINE, row.option)
    if environment is not None:
        return environment, Origin(ENVIRONMENT, variable or row.variable)
    if file is not None:
        return file, Origin(file_name)
    return row.default, Origin(DEFAULT)


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of environment variables by setting name. Empty variables count as unset.

    Raises:
        ConfigError: A variable has a value that is not allowed; the message names the variable, the
            value and the allowed values.
    """
    names = {row: _variable(row, environ) for row in SETTINGS}
    return {
        row.name: _of_variable(row, name, environ[name].strip())
        for row, name in names.items()
        if name
    }


def _variable(row: Setting[Any], environ: Mapping[str, str]) -> str:
    """The name of the variable that contains a value for this setting, or an empty string."""
    return next((name for name in row.variables if environ.get(name, "").strip()), "")


def _of_option(row: Setting[Any], given: Any) -> Any:  # noqa: ANN401 - argparse knows the types
    if given is None:
        return None
    if row.bare is not None and row.choices and given not in row.choices:
        # pytest's parser treats the next argument as the option's value.
        refuse(
            f"{row.option} takes {' or '.join(row.choices)} (got {given!r}); if a test path "
            f"follows, write {row.option}={row.bare}"
        )
    where = Location(COMMAND_LINE, row.option)
    if isinstance(given, str):
        text = given if row.kind in {str, Path} else given.strip()
        return _of_text(row, where, text)
    if row.between is not None:
        row.between.check(where, given)
    return tuple(given) if row.kind is tuple else given


def _of_variable(row: Setting[Any], name: str, text: str) -> Any:  # noqa: ANN401 - of its type
    where = Location(ENVIRONMENT, name)
    if row.by_truth is not None and name == row.variable:
        return _of_text(row, where, row.by_truth[0 if _truth(where, text) else 1])
    return _of_text(row, where, text.lower() if row.choices else text)


def _of_text(row: Setting[Any], where: Location, text: str) -> Any:  # noqa: ANN401 - of its type
    if row.choices is not None:
        return check_word(where, text, row.choices)
    if row.kind in {int, float}:
        return _number(where, text, row.between, row.kind)
    if row.kind is str and row.between is not None:
        number = text.removesuffix("%")
        if not _NUMBER.fullmatch(number):
            where.refuse(f'must be a number such as "100" or "5%" (got {shown(text)})')
        is_share = number != text
        _number(where, number, PERCENT if is_share else row.between, float if is_share else int)
    return _TEXTS[row.kind](where, text)


def _number(where: Location, text: str, bounds: Bounds | None, kind: type[_N]) -> _N:
    what, form = ("an integer", _WHOLE) if kind is int else ("a number", _NUMBER)
    if not form.fullmatch(text):
        allowed = "" if bounds is None else f" {bounds}"
        where.refuse(f"must be {what}{allowed} (got {shown(text)})")
    return kind(text) if bounds is None else bounds.check(where, kind(text))


def _truth(where: Location, text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        where.refuse(f'must be "true" or "false" (got {shown(text)})')
    return text.lower() in _TRUE


def parse_repeats(location: Location, text: str) -> Repeats:
    """Parse repetitions of the form `N` or `NxM`.

    Args:
        location: The place of the text, for the message.
        text: The user's text, without leading and trailing blanks.

    Raises:
        ConfigError: The text has another form, or a number is out of range.
    """
    found = _REPEATS.fullmatch(text)
    if found is None:
        location.refuse(
            'must be a number of repetitions such as "20", or "20x3" for only the first 3 values '
            f"of the parameter named in mark ultrapar(repeats_over=...) (got {shown(text)})"
        )
    n = REPEATS.check(location, int(found[1]))
    return Repeats(n, None if found[2] is None else REPEATS.check(location, int(found[2])))


def parse_which(location: Location, text: str) -> WhichLog:
    """Parse the setting that selects which workers write a debug log.

    The text is `all`, `off`, or the number of one worker, counted from 1.

    Raises:
        ConfigError: The text has another form, or the number is out of range.
    """
    if text in {"all", "off"}:
        return WhichLog(is_on=text == "all")
    if not _WHOLE.fullmatch(text):
        location.refuse(
            'must be "all", "off" or the number of one worker process, where 1 is the first '
            f"(got {shown(text)})"
        )
    return WhichLog(is_on=True, number=PROCESS_NUM.check(location, int(text)))


def parse_shard(location: Location, text: str) -> Shard:
    """Parse a shard, `K/N` or `auto`; `settled_shard` resolves `auto` later.

    Raises:
        ConfigError: The text has another form, or there is no such shard.
    """
    if text == "auto":
        return Shard()
    found = _SHARD.fullmatch(text)
    if found is None:
        location.refuse(
            f'must be "auto" or K/N, such as "2/4" for shard 2 of 4 (got {shown(text)})'
        )
    k, n = int(found[1]), int(found[2])
    if not 1 <= n <= SHARDS.at_most:
        location.refuse(f"must be K/N with N {SHARDS} (got {shown(text)})")
    if not 1 <= k <= n:
        location.refuse(f"must be between 1/{n} and {n}/{n} (got {shown(text)})")
    return Shard(k, n)


_ENTRY_CHARS = 12
"""An entry with more characters is not a port. Messages do not show it, because `ports_env` may by
mistake name a variable that holds a key.
"""


def parse_ports(location: Location, text: str) -> Ports:
    """Parse a comma-separated list of ports; blanks around an entry are ignored.

    Raises:
        ConfigError: An entry is not a number, is out of range or is repeated.
    """
    ports = []
    for entry in (part.strip() for part in text.split(",")):
        if len(entry) > _ENTRY_CHARS or not _WHOLE.fullmatch(entry):
            found = shown(entry) if len(entry) <= _ENTRY_CHARS else "a longer text"
            location.refuse(f'must be a list of ports such as "8001,8002" (it contains {found})')
        ports.append(int(entry))
    return Ports(check_ports(location, ports))


_TEXTS: Mapping[type, Callable[[Location, str], Any]] = {
    bool: _truth,
    str: lambda _, text: text,
    Path: lambda _, text: Path(text) if text else None,
    # An option may be repeated, but a variable holds only one value.
    tuple: lambda _, text: (text,),
    Repeats: parse_repeats,
    WhichLog: parse_which,
    Ports: parse_ports,
    Shard: parse_shard,
}
"""The parser for the text of a setting, by the `kind` of its row."""


def check_ports(location: Location, ports: Sequence[int]) -> tuple[int, ...]:
    """Return the ports, if all are different and between 1 and 65535.

    Raises:
        ConfigError: The list is empty, or a port is out of range or repeated.
    """
    if not ports:
        location.refuse("must name at least one port (got none)")
    for index, port in enumerate(ports):
        PORT.check(location.item(index), port)
    check_different((location.item(index), str(port)) for index, port in enumerate(ports))
    return tuple(ports)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings for the pool, from the command line and from suites. None means not given.

    Attributes:
        max_workers: `--ultrapar-max-workers`, the maximum number of requests in flight over the
            whole pool.
        rate_mode: `--ultrapar-rate-mode`, `fixed` or `adaptive`.
        budget: `--ultrapar-budget`, the money that the whole run may spend.
        prompt_types: A function that counts the prompt types that the run selects. It returns None
            if no suite has prompt types.
    """

    max_workers: int | None = None
    rate_mode: str | None = None
    budget: float | None = None
    prompt_types: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of values for one pool: command line, environment and file.

    Attributes:
        overrides: The settings from the command line.
        environ: All environment variables, because `ports_env` may name any of them.
        environment: The values of the plugin's own variables, by setting name.
        file_name: The pool file's name, as origins show it.
        effective: The values that have been recorded so far.
    """

    overrides: Overrides
    environ: Mapping[str, str]
    environment: Mapping[str, Any]
    file_name: str
    effective: list[EffectiveValue] = field(default_factory=list)

    def note(self, name: str, value: str | float | None, origin: str | None = None) -> None:
        """Record a value in force and its origin (by default, the file). None is not recorded."""
        if value is not None:
            self.effective.append(EffectiveValue(name, value, origin or self.file_name))

    def resolve(
        self, row: Setting[Any], file: str | float | None, place: Location
    ) -> tuple[Any, Origin, Location]:
        """Resolve one of the pool's own settings: `max_workers`, `rate_mode` or `budget`.

        Args:
            row: The setting.
            file: Its value in the pool file.
            place: The location of the field in the pool file.

        Returns:
            The value in force, its origin, and its location.
        """
        value, origin = resolve(
            row,
            command_line=getattr(self.overrides, row.name),
            environment=self.environment.get(row.name),
            variable=_variable(row, self.environ),
            file=file,
            file_name=self.file_name,
        )
        return value, origin, Location(*origin) if origin.name else place
