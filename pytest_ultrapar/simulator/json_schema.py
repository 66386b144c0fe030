"""Make the smallest value that matches a JSON schema, for structured output and tool calls.

The module supports `type`, `enum`, `const`, `properties`, `required`, `items`, `anyOf` (the first
branch without endless references), `$ref`, and bounds on numbers and lengths. It ignores other
keywords, so the value may violate a `pattern` or a `format`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

_Within = tuple[object, ...]
"""The references that were followed to reach a part of the schema."""
_MOST = 10_000
"""The maximum number of values made for a schema, and of items or characters that it may require.
Making this many takes some tens of milliseconds."""


def smallest(schema: object, heard: str) -> object:
    """Make the smallest value that matches the schema.

    Args:
        schema: The schema, decoded from JSON. Types may be upper-case, as in Gemini's API.
        heard: The text for strings, which is cut or padded to the allowed length.

    Raises:
        ValueError: The schema is malformed or too large, or its references never end.
    """
    try:
        return _Maker(schema, heard).value(schema, ())
    except (RecursionError, OverflowError):
        _refuse("it is too deep or too large")


class _Maker:
    def __init__(self, root: object, heard: str) -> None:
        self._root = root
        self._heard = heard
        self._n_values = 0

    def value(self, schema: object, within: _Within) -> object:
        """The value for a part of the schema; `within` contains the references that led to it."""
        self._n_values += 1
        if self._n_values > _MOST:
            _refuse("the smallest value that matches it is too large")
        if schema is True:
            return {}
        if not isinstance(schema, Mapping):
            _refuse(f"a schema must be an object (got {schema!r:.40})")
        if (reference := schema.get("$ref")) is not None:
            if reference in within:
                _refuse("its references form a loop")
            return self.value(self._referred(reference), (*within, reference))
        for union in ("anyOf", "oneOf", "allOf"):
            if union in schema:
                branches = _list(schema, union)
                ending = [one for one in branches if not _leads_back(one, within)]
                return self.value((ending or branches)[0], within)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return _list(schema, "enum")[0]
        return self._of_type(schema, within)

    def _of_type(self, schema: Mapping[str, Any], within: _Within) -> object:
        kind = schema.get("type", "object")
        if isinstance(kind, list) and kind:
            kind = kind[0]
        match str(kind).lower():
            case "object":
                return self._object(schema, within)
            case "array":
                item = schema.get("items", True)
                return [self.value(item, within) for _ in range(_length(schema, "minItems", 0))]
            case "string":
                text = self._heard.ljust(_length(schema, "minLength", 0), "x")
                return text[: _length(schema, "maxLength", _MOST)]
            case "integer":
                return math.ceil(_number(schema))
            case "number":
                return _number(schema)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                raise ValueError(f"`type` must be a JSON type (got {kind!r:.40})")

    def _object(self, schema: Mapping[str, Any], within: _Within) -> dict[str, object]:
        """The required properties in the order of the schema, as in the answers of real models."""
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            _refuse("`properties` must be an object and `required` a list")
        names = [name for name in properties if name in required]
        names += [str(name) for name in required if name not in names]
        return {name: self.value(properties.get(name, True), within) for name in names}

    def _referred(self, reference: object) -> object:
        """The part of the schema that a reference points to."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            _refuse(f"`$ref` must point to a place within the schema (got {reference!r:.40})")
        found = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                _refuse(f"`$ref` {reference!r:.40} does not point to anything in the schema")
            found = found[name]
        return found


def _leads_back(schema: object, within: _Within) -> bool:
    return isinstance(schema, Mapping) and schema.get("$ref") in within


def _list(schema: Mapping[str, Any], word: str) -> list[Any]:
    found = schema[word]
    if not isinstance(found, list) or not found:
        _refuse(f"`{word}` must be a non-empty list")
    return found


def _length(schema: Mapping[str, Any], word: str, usual: int) -> int:
    # Gemini writes counts as strings, because they have 64 bits.
    given = str(schema.get(word, usual))
    if not given.isdecimal():
        _refuse(f"`{word}` must be a whole number")
    if word[:3] == "min" and int(given) > _MOST:
        _refuse(f"`{word}` is too large")
    return int(given)


def _number(schema: Mapping[str, Any]) -> float:
    """The number within the bounds that is closest to 0."""

    def given(word: str, step: int) -> list[float]:
        bound = schema.get(word)
        return [bound + step] if isinstance(bound, int | float) else []

    least = max([0, *given("minimum", 0), *given("exclusiveMinimum", 1)])
    return min([least, *given("maximum", 0), *given("exclusiveMaximum", -1)])


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
