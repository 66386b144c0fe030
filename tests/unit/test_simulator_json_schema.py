"""The smallest value that satisfies a schema."""

from __future__ import annotations

import pytest

from pytest_ultrapar.simulator.json_schema import smallest

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]+$"},
        "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "more": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        "note": {"type": "string"},
    },
    "required": ["more", "left", "name"],
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, {}),
        ({}, {}),
        ({"type": ["integer", "null"]}, 0),
        ({"type": "INTEGER", "minimum": 2.5}, 3),
        ({"type": "number", "exclusiveMinimum": 0}, 1),
        ({"type": "number", "maximum": -2}, -2),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": "string"}, "heard"),
        ({"type": "string", "minLength": 7}, "heardxx"),
        ({"type": "string", "maxLength": 2}, "he"),
        ({"type": "array", "items": {"const": 7}}, []),
        ({"type": "ARRAY", "items": {"const": 7}, "minItems": "2"}, [7, 7]),
        ({"enum": ["b", "a"]}, "b"),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, "heard"),
        ({"allOf": [{"$ref": "#/a~1b"}], "a/b": {"const": 1}}, 1),
        ({"required": ["x"]}, {"x": {}}),
        (
            {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
            {"name": "heard", "left": None, "more": []},
        ),
    ],
)
def test_value_is_the_smallest_that_satisfies_the_schema(schema, value):
    assert smallest(schema, "heard") == value


ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
WIDE = {
    "type": "array",
    "minItems": 101,
    "items": {"type": "array", "minItems": 101, "items": {}},
}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([], "must be an object"),
        ({"type": "text"}, "`type`"),
        ({"enum": []}, "`enum`"),
        ({"anyOf": 1}, "`anyOf`"),
        ({"required": 1}, "`required`"),
        ({"$ref": "http://example.org/a"}, "within the schema"),
        ({"$ref": "#/a/b"}, "does not point to anything"),
        ({"$ref": "#"}, "references form a loop"),
        ({"anyOf": [{"$ref": [1]}]}, "within the schema"),
        (ENDLESS, "references form a loop"),
        ({"type": "string", "minLength": 10**9}, "is too large"),
        ({"type": "array", "minItems": -1}, "`minItems`"),
        (WIDE, "is too large"),
    ],
)
def test_schema_without_a_value_is_refused_with_the_reason(schema, says):
    with pytest.raises(ValueError, match=says):
        smallest(schema, "heard")
