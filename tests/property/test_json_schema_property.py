"""What the simulated provider answers under a schema is valid under it, whatever the schema."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ultrapar.simulator.json_schema import value_under

NAMES = st.sampled_from(["a", "b", "c", "d e", "ü"])
SMALL = st.integers(0, 3)
SCALARS = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.fixed_dictionaries(
        {"enum": st.lists(st.one_of(st.text(max_size=3), st.none()), min_size=1)}
    ),
    st.fixed_dictionaries({"const": st.one_of(st.integers(), st.text(max_size=3), st.booleans())}),
    st.builds(
        lambda low, more, kind: {"type": kind, "minimum": low, "maximum": low + more},
        st.integers(-50, 50),
        SMALL,
        st.sampled_from(["integer", "number"]),
    ),
    st.builds(lambda n: {"type": "integer", "multipleOf": n}, st.integers(1, 9)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.floats(-9, 9)),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 60),
        SMALL,
    ),
    st.builds(
        lambda pattern: {"type": "string", "pattern": pattern},
        st.sampled_from(
            ["^[A-Z]{2}-\\d{3,}$", "a|b", "^(foo|bar)+$", "[^a-z]", "^\\S+@\\S+\\.\\w{2,}$", "x*?"]
        ),
    ),
    st.builds(
        lambda name: {"type": "string", "format": name},
        st.sampled_from(["date", "date-time", "ipv4", "email", "uuid", "unknown"]),
    ),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#/$defs/Node"}),
    st.just({"$ref": "#/$defs/word"}),
)


def objects(inner):
    return st.builds(
        lambda properties, required, rest: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if required[name]],
            "additionalProperties": rest,
        },
        st.dictionaries(NAMES, inner, max_size=4),
        st.fixed_dictionaries({name: st.booleans() for name in ["a", "b", "c", "d e", "ü"]}),
        st.booleans(),
    )


def arrays(inner):
    return st.builds(
        lambda items, least, more: {
            "type": "array",
            "items": items,
            "minItems": least,
            "maxItems": least + more,
        },
        inner,
        SMALL,
        SMALL,
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: {"allOf": [one, {"description": "x"}]}, inner),
    ),
    max_leaves=8,
)
DEFS = {
    "word": {"type": "string", "maxLength": 5},
    "Node": {
        "type": "object",
        "properties": {
            "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            "right": {"anyOf": [{"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/word"}]},
            "more": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["left", "right", "more"],
        "additionalProperties": False,
    },
}


@settings(deadline=None)
@given(schema=SCHEMAS, seed=st.integers(0, 1000), plain=st.booleans())
def test_value_is_valid_under_its_schema_and_the_same_for_the_same_seed(schema, seed, plain):
    document = {"$defs": DEFS, "allOf": [schema]}
    jsonschema.Draft202012Validator.check_schema(document)

    def made():
        pick = (lambda _: 0) if plain else random.Random(seed).randrange
        return value_under(document, "what is the answer to all of it, please?", pick)

    value = made()
    jsonschema.Draft202012Validator(document).validate(value)
    assert value == made()
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"minimum": 3}, {"maximum": 4}, {"type": "integer", "multipleOf": 2}]},
        {
            "allOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"minProperties": 3},
            ]
        },
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "number"}},
            "required": ["kind", "n"],
            "anyOf": [
                {"properties": {"kind": {"const": "b"}, "n": {"minimum": 7}}},
                {"properties": {"kind": {"const": "a"}}},
            ],
        },
        {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [1, 2, 3]}},
        {"type": "array", "uniqueItems": True, "minItems": 4},
        {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": 0.05, "maximum": 0.3, "multipleOf": 0.01},
        {"type": "integer", "exclusiveMaximum": -1e6},
        {"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}},
        {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "null"}]},
        True,
    ],
)
def test_value_keeps_what_several_keywords_say_together(schema):
    for seed in range(20):
        value = value_under(schema, "heard", random.Random(seed).randrange)
        jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (False, "allows nothing"),
        ([], "must be an object"),
        ({"not": {}}, "`not`"),
        ({"type": "text"}, "`type`"),
        ({"type": []}, "`type`"),
        ({"enum": []}, "`enum`"),
        ({"type": "integer", "enum": ["a"]}, "fits"),
        ({"$ref": "http://example.org/a"}, "within the schema"),
        ({"$ref": "#/a/b"}, "leads nowhere"),
        ({"$ref": "#"}, "never end"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            "never end|deep",
        ),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "allows nothing"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "bounds"),
        ({"type": "integer", "minimum": "2"}, "must be a number"),
        ({"type": "string", "pattern": "("}, "no regular expression"),
        ({"type": "string", "pattern": "(?=a)"}, "not supported"),
        ({"type": "string", "pattern": "a{9999999}"}, "too long"),
        ({"type": "string", "minLength": 10**9}, "too"),
        ({"type": "array", "minItems": 10**9}, "too much"),
        ({"anyOf": [{"allOf": [False]}]}, "no branch"),
        (
            {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}},
            "unique",
        ),
    ],
)
def test_schema_that_cannot_be_met_says_why(schema, says):
    with pytest.raises(ValueError, match=says):
        value_under(schema, "heard", random.Random(0).randrange)


def test_work_on_a_schema_is_bounded():
    branch = {"anyOf": [{"$ref": "#/$defs/x"}] * 10}
    wide = {
        "type": "object",
        "properties": dict.fromkeys("abcdefgh", branch),
        "required": [*"abcdefgh"],
    }
    with pytest.raises(ValueError, match=r"too much|deep|never end|no branch"):
        value_under({"$defs": {"x": wide}, "$ref": "#/$defs/x"}, "", random.Random(0).randrange)
