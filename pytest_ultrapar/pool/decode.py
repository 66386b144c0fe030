"""From the file's tables to typed ones, with every mistake named by the path of its field."""

from __future__ import annotations

import re
from types import UnionType
from typing import TYPE_CHECKING, NoReturn, TypeVar, get_args, get_type_hints

import msgspec

from pytest_ultrapar.pool.place import Place, kind_of, shown
from pytest_ultrapar.pool.schema import FileTable, PoolFile

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = 1
_File = TypeVar("_File", bound=FileTable)

_WORDS = {"int": "an integer", "float": "a number", "object": "a table", "array": "a list"}
_WORDS |= {"str": "a string", "bool": "true or false"}
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+|\.\.\.)\]")
_SOME_VALUE = "..."
_PATH = re.compile(r" - at `\$(.*)`\Z")
_REPEATED = frozenset({"provider", "provider.model", "fault", "capacity", "rate_headers"})
_HINTS = {
    "api": 'it must be "openai" or "azure-openai" or "simulated"',
    "name": "it is what results, limits and messages say",
    "schema": f"write schema = {SCHEMA} at the top of the file",
}


def decode(tables: Mapping[str, object], place: Place) -> PoolFile:
    """A pool file as typed tables.

    Raises:
        ConfigError: As `decode_as`.
    """
    return decode_as(PoolFile, tables, place)


def decode_as(file: type[_File], tables: Mapping[str, object], place: Place) -> _File:
    """A file of this package as typed tables.

    Raises:
        ConfigError: Another schema, an unknown or missing field, or a wrong type.
    """
    schema = tables.get("schema", SCHEMA)
    # Before anything else: under another schema every other complaint would mislead.
    if isinstance(schema, int) and schema != SCHEMA:
        place.at("schema").refuse(f"must be {SCHEMA} (got {shown(int(schema))})")
    try:
        return msgspec.convert(tables, file)
    except msgspec.ValidationError as error:
        _explain(str(error), file, tables, place)


def _explain(
    message: str, file: type[FileTable], tables: Mapping[str, object], place: Place
) -> NoReturn:
    path = _PATH.search(message)
    found: object = tables
    expected: object = file
    for step in _STEP.finditer(path[1] if path else ""):
        field, index = step.groups()
        if field:
            place = place.at(field)
            found = found[field] if isinstance(found, dict) else None
            expected = get_type_hints(_table_in(expected))[field]
        elif index == _SOME_VALUE:
            expected = _entry_of(expected, dict)
            name, found = _misfit(found, expected)
            place = place.at(name)
        else:
            place = place.item(int(index))
            found = found[int(index)] if isinstance(found, list) else None
            expected = _entry_of(expected, list)
    if unknown := re.search(r"unknown field `(.*?)`", message):
        _refuse_unknown(place.at(unknown[1]), unknown[1], _table_in(expected))
    if missing := re.search(r"missing required field `(.*?)`", message):
        hint = _HINTS.get(missing[1])
        place.at(missing[1]).refuse("is missing" + (f"; {hint}" if hint else ""))
    if kinds := re.search(r"Expected `(.*?)`", message):
        place.refuse(f"must be {_kinds(kinds[1])} (got {_got(found)}){_advice(found, place)}")
    place.refuse(f"cannot be read ({message})")


def _refuse_unknown(place: Place, field: str, table: type[FileTable]) -> NoReturn:
    import difflib  # noqa: PLC0415 - 8 ms, needed only for this message

    allowed = sorted(table.__struct_fields__)
    near = difflib.get_close_matches(field, allowed, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    place.refuse(f"is not a known field{meant} (allowed: {', '.join(allowed)})")


def _kinds(expected: str) -> str:
    kinds = [kind for kind in expected.split(" | ") if kind != "null"]
    if "float" in kinds:
        kinds.remove("int")
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def _got(found: object) -> str:
    # Numbers help to find the slip; strings may be secrets in the wrong place.
    return shown(found) if isinstance(found, int | float) else kind_of(found)


def _advice(found: object, place: Place) -> str:
    header = re.sub(r"\[\d+\]", "", place.path)
    if isinstance(found, dict) and header in _REPEATED:
        return f"; write [[{header}]]"
    return ""


def _table_in(expected: object) -> type[FileTable]:
    options = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    return next(o for o in options if isinstance(o, type) and issubclass(o, FileTable))


def _entry_of(expected: object, container: type) -> object:
    """What the entries of a list, or the values of a table of any names, are to be."""
    options = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    found = [option for option in options if getattr(option, "__origin__", None) is container]
    return get_args(found[0])[-1]


def _misfit(table: object, expected: object) -> tuple[str, object]:
    """The first entry of a table whose value is of another type: msgspec does not say which."""
    for name, value in table.items() if isinstance(table, dict) else ():
        try:
            msgspec.convert(value, expected)
        except msgspec.ValidationError:
            return name, value
    return _SOME_VALUE, table
