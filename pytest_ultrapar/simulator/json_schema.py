"""A value that is valid under a JSON schema, as structured output and tool calls need one.

The keywords are those that clients of language models send. What would need a search (`not`,
`if`, `contains`, ...) is refused by name, and `oneOf` is taken as `anyOf`: in generated schemas its
branches exclude each other by a tag.

Source: JSON Schema, draft 2020-12, Core (sections 8 and 10) and Validation (section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

Pick = Callable[[int], int]
"""Says which of so many to take, from 0 on."""

_DEEPEST = 64
_PLAIN_BELOW = _DEEPEST - 6
"""Deeper than this only what must be there is made, so that recursive schemas come to an end."""
_MOST_STEPS = 10_000  # some tens of milliseconds
_LONGEST = 100_000
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_UNKNOWN = {
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
}
_LARGER = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
_SMALLER = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "P1DT2H",
    "email": "someone@example.org",
    "idn-email": "someone@example.org",
    "hostname": "example.org",
    "idn-hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "https://example.org/",
    "uri-reference": "https://example.org/",
    "iri": "https://example.org/",
    "url": "https://example.org/",
    "json-pointer": "/a",
    "regex": "a",
}

_Object = Mapping[str, Any]


class _NotHereError(ValueError):
    """No value can be made of this schema; one of another branch may be."""


class _TooLargeError(ValueError):
    """The work is not bounded as it should be; another choice may need less."""


def value_under(schema: object, heard: str, pick: Pick) -> object:
    """A value that is valid under the schema.

    Args:
        schema: As decoded from JSON.
        heard: Stands in strings that may hold any text.
        pick: The only source of chance; one that always says 0 makes the plainest value.

    Raises:
        ValueError: No value is valid, the schema is malformed or too large, or it holds a keyword
            that is not understood.
    """
    try:
        try:
            return _Maker(schema, heard, pick).value(schema, _DEEPEST)
        except _TooLargeError:
            return _Maker(schema, heard, lambda _: 0).value(schema, _PLAIN_BELOW)
    except (RecursionError, OverflowError) as error:
        msg = "it is too deep or too large"
        raise ValueError(msg) from error


class _Maker:
    def __init__(self, root: object, heard: str, pick: Pick) -> None:
        self._root = root
        self._heard = heard
        self._pick = pick
        self._n_steps = 0
        self._n_characters = 0

    def value(self, schema: object, depth: int) -> object:
        """A value, with so many levels left below it."""
        self._step()
        if depth <= 0:
            msg = "it is nested too deep"
            raise _NotHereError(msg)
        merged = self._resolved(schema, depth)
        for union in ("anyOf", "oneOf"):
            if union in merged:
                rest = {key: value for key, value in merged.items() if key != union}
                return self._branch(rest, _schemas(merged, union), depth)
        if "const" in merged or "enum" in merged:
            return self._listed(merged)
        kinds = _kinds(merged)
        for kind in self._rotated(kinds):
            try:
                return self._of_kind(kind, merged, depth)
            except _NotHereError:
                if len(kinds) == 1:
                    raise
        msg = "no type of it has a value"
        raise _NotHereError(msg)

    def _step(self) -> None:
        self._n_steps += 1
        if self._n_steps > _MOST_STEPS:
            msg = "it asks for too much"
            raise _TooLargeError(msg)

    def _rotated(self, options: list[Any]) -> list[Any]:
        first = self._pick(len(options)) if len(options) > 1 else 0
        return options[first:] + options[:first]

    def _branch(self, rest: _Object, branches: list[object], depth: int) -> object:
        """A value under one of the branches and all of the rest."""
        allowances = (
            [depth] if depth > _PLAIN_BELOW else [n for n in (2, 4, 8, depth) if n <= depth]
        )
        for allowance in allowances:
            for branch in self._rotated(branches):
                try:
                    return self.value({"allOf": [rest, branch]}, allowance)
                except _NotHereError:
                    continue
        msg = "no branch of it has a value"
        raise _NotHereError(msg)

    def _resolved(self, schema: object, depth: int) -> dict[str, Any]:
        """The schema without references and `allOf`."""
        self._step()
        if depth <= 0:
            msg = "its references never end"
            raise _NotHereError(msg)
        if schema is True:
            return {}
        if schema is False:
            msg = "`false` allows nothing"
            raise _NotHereError(msg)
        if not isinstance(schema, Mapping):
            _refuse(f"a schema must be an object (got {_shown(schema)})")
        for word in _UNKNOWN & schema.keys():
            _refuse(f"`{word}` is not supported by the simulated provider")
        merged = {key: value for key, value in schema.items() if key not in {"$ref", "allOf"}}
        if "$ref" in schema:
            target = self._resolved(self._referred(schema["$ref"]), depth - 1)
            merged = _merged(merged, target)
        if "allOf" in schema:
            for part in _schemas(schema, "allOf"):
                merged = _merged(merged, self._resolved(part, depth - 1))
        return merged

    def _referred(self, reference: object) -> object:
        """What a reference within the document leads to."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            _refuse(f"`$ref` must lead to a place within the schema (got {_shown(reference)})")
        found = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                _refuse(f"`$ref` {_shown(reference)} leads nowhere")
        return found

    def _listed(self, schema: _Object) -> object:
        options = schema.get("enum", [schema.get("const")])
        if not isinstance(options, list) or not options:
            _refuse("`enum` must be a list that is not empty")
        if "const" in schema:
            options = [one for one in options if _same(one, schema["const"])]
        fitting = [one for one in options if _fits(one, schema)]
        if not fitting:
            msg = "no value of `enum` fits the rest"
            raise _NotHereError(msg)
        return fitting[self._pick(len(fitting))]

    def _of_kind(self, kind: str, schema: _Object, depth: int) -> object:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return bool(self._pick(2))
            case _:
                return None

    def _object(self, schema: _Object, depth: int) -> dict[str, object]:
        properties = _object_at(schema, "properties")
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            _refuse("`required` must be a list of names")
        least, most = _count(schema, "minProperties", 0), _count(schema, "maxProperties", math.inf)
        rest = schema.get("additionalProperties", True)
        names = list(dict.fromkeys(required))
        for name in properties:
            # The plainest has what is required and no more.
            wanted = depth > _PLAIN_BELOW and self._pick(2)
            if name not in names and len(names) < most and (wanted or len(names) < least):
                names.append(name)
        names += [f"key{n}" for n in range(len(names), int(least))]
        if len(names) > most:
            msg = "more properties are required than `maxProperties` allows"
            raise _NotHereError(msg)
        made: dict[str, object] = {}
        for name in names:
            try:
                made[name] = self.value(properties.get(name, rest), depth - 1)
            except _NotHereError:
                if name in required or len(names) <= least:
                    raise
        # In the order in which the schema describes them, as models answer.
        described = [name for name in properties if name in made]
        others = [name for name in made if name not in properties]
        return {name: made[name] for name in described + others}

    def _array(self, schema: _Object, depth: int) -> list[object]:
        first = _schemas(schema, "prefixItems") if "prefixItems" in schema else []
        least, most = _count(schema, "minItems", 0), _count(schema, "maxItems", math.inf)
        rest = schema.get("items", True)
        wanted = max(int(least), len(first))
        if depth > _PLAIN_BELOW and rest is not False:
            wanted += self._pick(3)
        made: list[object] = []
        unique = schema.get("uniqueItems") is True
        for index in range(int(min(wanted, most))):
            item = first[index] if index < len(first) else rest
            try:
                made.append(self._item(item, made if unique else [], depth - 1))
            except _NotHereError:
                if index < least:
                    raise
                break
        return made

    def _item(self, schema: object, others: list[object], depth: int) -> object:
        """An item that is none of the others."""
        pick = self._pick
        try:
            for shift in range(8 * len(others) + 1):
                self._pick = lambda n, shift=shift: (pick(n) + shift) % n  # type: ignore[misc]
                made = self.value(schema, depth)
                if not any(_same(made, other) for other in others):
                    return made
                if isinstance(made, str) and _is_free(self._resolved(schema, depth)):
                    return f"{made} {len(others)}"
        finally:
            self._pick = pick
        msg = "`uniqueItems` asks for more items than it has"
        raise _NotHereError(msg)

    def _string(self, schema: _Object) -> str:
        least, most = _count(schema, "minLength", 0), _count(schema, "maxLength", math.inf)
        if least > most:
            msg = "`minLength` is above `maxLength`"
            raise _NotHereError(msg)
        if "pattern" in schema:
            from pytest_ultrapar.simulator.matching import matching  # noqa: PLC0415 - seldom

            text = matching(schema["pattern"], int(least))
        elif schema.get("format") in _FORMATS:
            text = _FORMATS[schema["format"]]
        else:
            text = self._heard[: min(len(self._heard), int(min(most, _LONGEST)))]
            text += "x" * (int(min(least, _LONGEST + 1)) - len(text))
        self._n_characters += len(text)
        if self._n_characters > _LONGEST:
            msg = "it asks for too long a text"
            raise _TooLargeError(msg)
        if not least <= len(text) <= most:
            _refuse("its bounds of length do not go with its `pattern` or `format`")
        return text

    def _number(self, schema: _Object, *, whole: bool) -> float:
        low, high = _bound(schema, "minimum", -math.inf), _bound(schema, "maximum", math.inf)
        above = _bound(schema, "exclusiveMinimum", -math.inf)
        below = _bound(schema, "exclusiveMaximum", math.inf)
        step = _bound(schema, "multipleOf", 1 if whole else 0)
        if step < 0 or (step == 0 and "multipleOf" in schema):
            _refuse("`multipleOf` must be above 0")
        if whole and step != int(step):
            step = 1  # a multiple of both is looked for below
        from_, to = max(low, above), min(high, below)

        def holds(number: float) -> bool:
            return low <= number <= high and above < number < below and _fits(number, schema)

        for number in self._numbers(from_, to, step):
            if (not whole or number == int(number)) and holds(number):
                return int(number) if number == int(number) else number
        msg = "no number is within its bounds"
        raise _NotHereError(msg)

    def _numbers(self, from_: float, to: float, step: float) -> Iterator[float]:
        """Some numbers between two bounds, what chance says first."""
        shift = self._pick(100)
        unit = step or 1
        if from_ == -math.inf:
            start = 0 if to >= 0 else to // unit * unit
            direction = -1 if to < math.inf else 1
        else:
            start, direction = (0 if from_ < 0 <= to else -(-from_ // unit) * unit), 1
        for n in (shift, *range(101)):
            yield start + direction * n * unit
            yield start - direction * n * unit
        if not step and -math.inf < from_ and to < math.inf:
            for share in (0.5, 0.0, 1.0):
                yield from_ + (to - from_) * share


def _merged(  # noqa: PLR0912 - a rule for each keyword
    one: dict[str, Any], other: dict[str, Any]
) -> dict[str, Any]:
    """What is valid under both."""
    found = {**other, **one}
    for key in one.keys() & other.keys():
        mine, its = one[key], other[key]
        if mine == its:
            continue
        if key in _LARGER | _SMALLER:
            bounds = (_bound(one, key, 0), _bound(other, key, 0))
            found[key] = max(bounds) if key in _LARGER else min(bounds)
        elif key == "required" and isinstance(mine, list) and isinstance(its, list):
            found[key] = [*mine, *(name for name in its if name not in mine)]
        elif key == "type":
            kinds = [kind for kind in _kinds(one) if kind in _with_whole(_kinds(other))]
            kinds += [kind for kind in _kinds(other) if kind in _with_whole(_kinds(one))]
            if not kinds:
                msg = "its parts have different types"
                raise _NotHereError(msg)
            found[key] = list(dict.fromkeys(kinds))
        elif key == "enum" and isinstance(mine, list) and isinstance(its, list):
            found[key] = [value for value in mine if any(_same(value, i) for i in its)]
            if not found[key]:
                msg = "its parts have no value in common"
                raise _NotHereError(msg)
        elif key == "const":
            msg = "its parts have different values"
            raise _NotHereError(msg)
        elif key in {"anyOf", "oneOf"}:
            found[key] = [
                {"allOf": [a, b]} for a in _schemas(one, key) for b in _schemas(other, key)
            ]
        elif key == "items":
            found[key] = {"allOf": [mine, its]}
        elif key in {"pattern", "multipleOf", "prefixItems"}:
            _refuse(f"`{key}` is given twice for one value, which is not supported")
    if "properties" in found or "additionalProperties" in found:
        found |= _merged_properties(one, other)
    return found


def _merged_properties(one: _Object, other: _Object) -> dict[str, Any]:
    mine, its = _object_at(one, "properties"), _object_at(other, "properties")
    my_rest, its_rest = (part.get("additionalProperties", True) for part in (one, other))
    properties = {
        name: _both(mine.get(name, my_rest), its.get(name, its_rest))
        for name in dict.fromkeys([*mine, *its])
    }
    return {"properties": properties, "additionalProperties": _both(my_rest, its_rest)}


def _both(one: object, other: object) -> object:
    if one is True or one == other:
        return other
    return one if other is True else {"allOf": [one, other]}


def _kinds(schema: _Object) -> list[str]:
    """The types that a value may have, by its keywords where none is said."""
    kinds = schema.get("type")
    if kinds is None:
        if schema.keys() & {"properties", "required", "additionalProperties", "minProperties"}:
            return ["object"]
        if schema.keys() & {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}:
            return ["array"]
        if schema.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
            return ["number"]
        return ["number"] if "multipleOf" in schema else ["string"]
    found = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(found, list) or not found or not all(kind in _TYPES for kind in found):
        _refuse(f"`type` must be of {', '.join(_TYPES)} (got {_shown(kinds)})")
    return found


def _with_whole(kinds: list[str]) -> set[str]:
    return {*kinds, "integer"} if "number" in kinds else {*kinds}


def _fits(value: object, schema: _Object) -> bool:
    """Whether a value without parts keeps the bounds; what has parts is believed."""
    kinds = _kinds(schema) if "type" in schema else list(_TYPES)
    match value:
        case bool():
            return "boolean" in kinds
        case int() | float():
            step = _bound(schema, "multipleOf", 0)
            return (
                ("number" in kinds or ("integer" in kinds and value == int(value)))
                and _bound(schema, "minimum", -math.inf) <= value
                and value <= _bound(schema, "maximum", math.inf)
                and _bound(schema, "exclusiveMinimum", -math.inf) < value
                and value < _bound(schema, "exclusiveMaximum", math.inf)
                and (step == 0 or _divides(step, value))
            )
        case str():
            least = _count(schema, "minLength", 0)
            return "string" in kinds and least <= len(value) <= _count(
                schema, "maxLength", math.inf
            )
        case None:
            return "null" in kinds
        case list():
            return "array" in kinds
        case _:
            return "object" in kinds


def _divides(step: float, value: float) -> bool:
    if isinstance(step, int) and isinstance(value, int):
        return value % step == 0
    # As validators judge it: 0.07 is no multiple of 0.01.
    quotient = value / step
    return quotient == int(quotient)


def _is_free(schema: _Object) -> bool:
    """Whether a string under it may be any text."""
    return not schema.keys() & {"pattern", "format", "maxLength", "enum", "const", "anyOf", "oneOf"}


def _same(one: object, other: object) -> bool:
    """Equality as JSON Schema has it: `true` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _schemas(schema: _Object, key: str) -> list[object]:
    found = schema[key]
    if not isinstance(found, list | tuple) or not found:
        _refuse(f"`{key}` must be a list that is not empty")
    return list(found)


def _object_at(schema: _Object, key: str) -> _Object:
    found = schema.get(key, {})
    if not isinstance(found, Mapping):
        _refuse(f"`{key}` must be an object")
    return found


def _bound(schema: _Object, key: str, default: float) -> float:
    found = schema.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        _refuse(f"`{key}` must be a number")
    return found


def _count(schema: _Object, key: str, default: float) -> float:
    found = _bound(schema, key, default)
    if found < 0:
        _refuse(f"`{key}` must be at least 0")
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - characters


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
