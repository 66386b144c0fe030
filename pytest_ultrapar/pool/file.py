"""Read the pool file: bytes, then TOML, then typed tables.

Error messages name the field, such as `provider[0].per_key.qps`.
"""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from pytest_ultrapar.apis.registry import MODULES
from pytest_ultrapar.pool.field_checks import (
    Location,
    check_word,
    did_you_mean,
    kind_of,
    looks_like_secret,
    one_of,
    shown,
    shown_text,
)
from pytest_ultrapar.pool.model import LIMIT_KINDS, LatencyKind, LimitKind, PersonaName
from pytest_ultrapar.pool.number_ranges import MONEY, REPEATS, SEED, WORKERS, Bounds
from pytest_ultrapar.pool.settings import RateMode, Recording  # noqa: TC001 - types of fields
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


MAX_BYTES = 1024 * 1024
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")


def read_pool_file(path: Path, location: Location) -> tuple[str, str]:
    """Return the text of a file of at most 1 MiB, and the SHA-256 (hex) of the file's bytes.

    Raises:
        ConfigError: The file is missing, unreadable, not a regular file, too large or not UTF-8.
    """
    try:
        # Refuse a pipe such as <(...): the workers read the file again, and the pipe is then empty.
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        location.refuse("there is no such file")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is malformed"
        location.refuse(f"cannot be read ({reason})")
    if len(content) > MAX_BYTES:
        location.refuse(f"must not be larger than {MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        location.refuse(f"must be UTF-8 (line {line} is not)")
    return text, sha256(content).hexdigest()


def parse_toml(text: str, location: Location) -> dict[str, object]:
    """Return the file's tables.

    Raises:
        ConfigError: The text is not TOML. The message contains the line number but not the line's
            text, which may hold a secret.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        location.refuse("is nested too deeply")
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at_line = _AT_LINE.search(message)
        number = at_line[1] if at_line and at_line[1] else len(text.splitlines() or [""])
        location.refuse(f"line {number} is not valid TOML: {shown_text(_AT_LINE.sub('', message))}")
    except ValueError:
        # If a number has too many digits, tomllib lets the interpreter's own ValueError through.
        location.refuse("contains a number with too many digits")


def within(bounds: Bounds) -> Meta:
    """The bounds of a number as a constraint for msgspec."""
    return Meta(ge=bounds.at_least, le=bounds.at_most)


Workers = Annotated[int, within(WORKERS)]
Money = Annotated[float, within(MONEY)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
MaxTokens = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Seed = Annotated[int, within(SEED)]


class FileTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of all tables. Unknown fields are refused."""


class ByMode(FileTable, kw_only=True):
    """A number for each rate mode."""

    fixed: float | None = None
    adaptive: float | None = None


def _amount(kind: LimitKind) -> Any:  # noqa: ANN401 - a type
    """The type of the field for this kind of limit, such as `Workers | ByMode | None`."""
    number: Any = float if kind.is_rate and not kind.is_daily else int
    one = Annotated[number, within(kind.bounds)]
    fields = [(mode, one | None, None) for mode in ("fixed", "adaptive")]
    return one | msgspec.defstruct(f"By{kind.word}", fields, bases=(ByMode,), kw_only=True) | None


if TYPE_CHECKING:
    _Amounts = FileTable
else:
    _Amounts = msgspec.defstruct(
        "_Amounts",
        [(word, _amount(kind), None) for word, kind in LIMIT_KINDS.items()],
        bases=(FileTable,),
        kw_only=True,
    )


class LimitTable(_Amounts, kw_only=True):
    """The bounds that any level may declare, one field per kind; a missing field means no limit."""

    day: str | None = None
    budget: Money | None = None


class LatencyTable(FileTable, kw_only=True):
    """The response time of the simulated provider."""

    kind: LatencyKind
    median_s: Annotated[float, Meta(ge=0, le=3_600)]
    sigma: Annotated[float, Meta(ge=0, le=5)] | None = None
    knee: Workers | None = None


class KeyTable(LimitTable, kw_only=True):
    """A key. Its own bounds override the bounds in `per_key`."""

    name: str
    env: str | None = None


class InstanceTable(FileTable, kw_only=True):
    """An instance with its own API name or address instead of the model's."""

    name: str
    api_name: str | None = None
    base_url: str | None = None
    metrics_url: str | None = None


class ModelTable(FileTable, kw_only=True):
    """`[[provider.model]]`."""

    name: str
    instances: list[str | InstanceTable] | None = None
    ports: list[int] | None = None
    ports_env: str | None = None
    api_name: str | None = None
    keys: list[str] | None = None
    family: str | None = None
    per_instance: LimitTable | None = None
    per_lane: LimitTable | None = None
    latency_hint_s: Seconds | None = None
    price_per_mtok_in: Price | None = None
    price_per_mtok_out: Price | None = None
    price_per_mtok_cached: Price | None = None
    price_per_mtok_cache_write: Price | None = None
    multiply_by_prompt_types: bool = False
    stream: bool | None = None
    max_tokens: MaxTokens | None = None
    parameters: dict[str, str | bool] | None = None
    persona: PersonaName | None = None
    skill: Annotated[float, Meta(ge=0, le=1)] | None = None
    latency: LatencyTable | None = None
    subject: bool | None = None


class ProviderTable(LimitTable, kw_only=True):
    """`[[provider]]`."""

    name: str
    api: str
    base_url: str | None = None
    api_version: str | None = None
    timeout_s: Seconds | None = None
    rate_mode: RateMode | None = None
    stream: bool | None = None
    max_tokens: MaxTokens | None = None
    parameters: dict[str, str | bool] | None = None
    metrics_url: str | None = None
    patterns: dict[str, list[str]] | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    proxy_env: str | None = None
    trust_env: bool | None = None
    keys: list[KeyTable] = msgspec.field(default_factory=list)
    per_key: LimitTable | None = None
    per_key_model: LimitTable | None = None
    latency: LatencyTable | None = None
    simulation_seed: Seed | None = None
    model: list[ModelTable] = msgspec.field(default_factory=list)


class WholePoolTable(LimitTable, kw_only=True):
    """`[pool]`."""

    rate_mode: RateMode | None = None
    record: Recording | None = None
    repeats: Annotated[int, within(REPEATS)] | None = None
    prompt_types: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    currency: str | None = None
    prices: Literal["genai-prices"] | None = None


class RoleTable(FileTable, kw_only=True):
    """`[role.<name>]`."""

    model: str


class PoolFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int
    pool: WholePoolTable | None = None
    provider: list[ProviderTable] = []
    role: dict[str, RoleTable] = {}


MAX_DEPTH = 8
"""The maximum depth of nesting. The schema needs 6 levels, for
`provider[0].per_key.workers.fixed`."""
_SECRET_FIELDS = frozenset(
    {"key", "api_key", "apikey", "secret", "token", "password", "authorization", "bearer"}
)
_BARE_FIELD = re.compile(r"[A-Za-z0-9_-]+")
_REFUSED_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")


def refuse_forbidden(tables: Mapping[str, object], location: Location) -> None:
    """Check that a file contains no secret and is not nested too deeply.

    Raises:
        ConfigError: A field holds or may hold a secret, or a table is nested too deeply. The
            message names the field but never shows its value.
    """
    for where, field, value in _fields(tables, location):
        word = field.lower().replace("-", "_")
        if word in _SECRET_FIELDS:
            where.refuse(
                "is refused: the pool file must not contain secrets; put the secret into an"
                ' environment variable and name that variable: env = "MY_API_KEY"'
            )
        if field in {"env", "proxy_env"}:
            check_variable(where, value)


def check_variable(location: Location, value: object) -> str:
    """Return the value, if it is the name of an environment variable.

    Raises:
        ConfigError: It is not such a name. The message does not show the value, because it may be a
            secret.
    """
    if not isinstance(value, str):
        location.refuse(f"must be the name of an environment variable (got {kind_of(value)})")
    if not value:
        location.refuse("must be the name of an environment variable (got an empty string)")
    if not _REFUSED_VARIABLE.fullmatch(value) or looks_like_secret(value):
        location.refuse(
            "must be the name of an environment variable (A-Z, 0-9 and _), not its value; this "
            "text is not shown, because it may be a secret"
        )
    return value


def _fields(
    tables: Mapping[str, object], location: Location
) -> Iterator[tuple[Location, str, object]]:
    # A stack instead of recursion: with dotted keys, a short text can nest deeply.
    stack: list[tuple[Location, object, int]] = [(location, tables, 0)]
    while stack:
        where, value, depth = stack.pop()
        if depth > MAX_DEPTH:
            location.refuse(
                f"is nested more than {MAX_DEPTH} levels deep (at {shown_text(where.path)})"
            )
        if isinstance(value, dict):
            for field in value:
                if not _BARE_FIELD.fullmatch(field) or looks_like_secret(field):
                    where.refuse(f"has an unknown field {shown(field)}")
            for field, inner in value.items():
                yield where.at(field), field, inner
            stack.extend((where.at(f), inner, depth + 1) for f, inner in reversed(value.items()))
        elif isinstance(value, list):
            entries = [(where.item(i), inner, depth + 1) for i, inner in enumerate(value)]
            stack.extend(reversed(entries))


SCHEMA = 1
_File = TypeVar("_File", bound=FileTable)
_WORDS = {"int": "an integer", "float": "a number", "object": "a table", "array": "a list"}
_WORDS |= {"str": "a string", "bool": "true or false"}
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+|\.\.\.)\]")
_SOME_NAME = "..."
_PATH = re.compile(r" - at `\$(.*)`\Z")
_HINTS = {
    "api": f"it must be {one_of(tuple(MODULES))}",
    "name": "results, limits and messages use it",
    "model": "it names the model in the pool that has this role",
    "schema": f"write schema = {SCHEMA} at the top of the file",
}


def decode_as(file: type[_File], tables: Mapping[str, object], location: Location) -> _File:
    """Convert the tables of a file to the types of its schema.

    Raises:
        ConfigError: The file's schema version is not supported, a field is unknown or missing, or a
            value has the wrong type.
    """
    schema = tables.get("schema", SCHEMA)
    # Check this first: with another schema, every other message would mislead.
    if isinstance(schema, int) and schema != SCHEMA:
        location.at("schema").refuse(f"must be {SCHEMA} (got {shown(int(schema))})")
    try:
        return msgspec.convert(tables, file)
    except msgspec.ValidationError as error:
        _explain(str(error), file, tables, location)


def _explain(message: str, table: type[FileTable], found: object, location: Location) -> NoReturn:
    """Translate an error from msgspec into words and a path that the user knows."""
    at = _PATH.search(message)
    what, path = (message[: at.start()], at[1]) if at else (message, "")
    hint: Any = None
    for field, index in _STEP.findall(path):
        if field:
            hint = get_type_hints(table, include_extras=True).get(field)
            found = found.get(field) if isinstance(found, dict) else None
            table = _table_in(hint) or table
        elif index != _SOME_NAME:
            found = found[int(index)] if isinstance(found, list) else None
        elif isinstance(found, dict):
            name = _misfit(found, hint)
            found, path = found[name], path.replace(f"[{index}]", f".{name}", 1)
    place = Location(location.source, path.removeprefix("."))
    if unknown := re.search(r"unknown field `(.*?)`", what):
        _refuse_unknown(place.at(unknown[1]), unknown[1], table)
    if missing := re.search(r"missing required field `(.*?)`", what):
        hint = _HINTS.get(missing[1])
        place.at(missing[1]).refuse("is missing" + (f"; {hint}" if hint else ""))
    if what.startswith("Invalid enum value"):
        check_word(place, str(found), _words_in(hint))
    if wanted := re.fullmatch(r"Expected `(?:int|float)` ([<>]=? .*?)(?:\.0)?", what):
        place.refuse(f"must be {wanted[1]} (got {_got(found)})")
    if kinds := re.match(r"Expected `(.*?)`", what):
        header = re.sub(r"\[\d+\]", "", place.path)
        is_one = kinds[1].startswith("array") and isinstance(found, dict)
        advice = f"; write [[{header}]]" if is_one else ""
        place.refuse(f"must be {_kinds(kinds[1])} (got {_got(found)}){advice}")
    place.refuse(f"cannot be read ({what})")


def _table_in(hint: object) -> type[FileTable] | None:
    """The table type in a type hint, even inside a list, dict or union; None if it has no table."""
    if isinstance(hint, type) and issubclass(hint, FileTable):
        return hint
    return next((one for each in get_args(hint) if (one := _table_in(each))), None)


def _words_in(hint: object) -> tuple[str, ...]:
    """The words that this type hint allows."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(word for each in get_args(hint) for word in _words_in(each))


def _misfit(found: dict[str, object], hint: object) -> str:
    """Find the first name whose value has the wrong type. msgspec does not report the name."""
    (of,) = (get_args(one)[1] for one in (hint, *get_args(hint)) if get_origin(one) is dict)
    for name, value in found.items():
        try:
            msgspec.convert(value, of)
        except msgspec.ValidationError:
            return name
    raise AssertionError


def _refuse_unknown(location: Location, field: str, table: type[FileTable]) -> NoReturn:
    allowed = sorted(table.__struct_fields__)
    meant = did_you_mean(field, allowed)
    if not meant and table is ModelTable:
        meant = did_you_mean(field, ProviderTable.__struct_fields__, form="{} in the provider")
    if not meant and table is ProviderTable:
        meant = did_you_mean(field, ModelTable.__struct_fields__, form="{} in its models")
    location.refuse(f"is not a known field{meant} (allowed: {', '.join(allowed)})")


def _kinds(expected: str) -> str:
    kinds = [kind for kind in expected.split(" | ") if kind != "null"]
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def _got(found: object) -> str:
    # A number helps to find the mistake; a string may be a misplaced secret.
    return shown(found) if isinstance(found, int | float) else kind_of(found)
