"""Any pool of valid data loads completely; any other is refused with a ConfigError."""

import json
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.examples import examples

LEVELS = ["pool", "provider", "key", "key_model", "instance", "lane"]
NAME = st.text("abcXYZ019._:-", min_size=1, max_size=6)


def names(prefix, max_size=3):
    # A prefix per kind keeps names of keys, instances and models different, as a valid pool must.
    return st.lists(NAME.map(prefix.__add__), min_size=1, max_size=max_size, unique=True)


def by_mode(number):
    modes = st.fixed_dictionaries({"fixed": number}, optional={"adaptive": number})
    return number | modes.map(with_room)


def with_room(modes):
    """A ceiling of adaptive mode is never below the value of fixed mode."""
    return {**modes, "adaptive": max(modes.values())} if "adaptive" in modes else modes


def fixed(value):
    return value["fixed"] if isinstance(value, dict) else value


def consistent(limit):
    """The limit per second fits into the limit per minute."""
    if "qps" in limit and "rpm" in limit and fixed(limit["rpm"]) < fixed(limit["qps"]):
        return {name: value for name, value in limit.items() if name != "rpm"}
    return limit


WORKERS = by_mode(st.integers(1, 100_000))
RATE = by_mode(st.integers(1, 1_000_000) | st.floats(1e-6, 1e6))
LIMIT = st.fixed_dictionaries({}, optional={"workers": WORKERS, "qps": RATE, "rpm": RATE}).map(
    consistent
)


@st.composite
def providers(draw, name):
    limit = draw(LIMIT)
    keys = [{"name": key, **draw(LIMIT)} for key in draw(names("k"))]
    instances = iter(draw(names("i", 6)))
    models = []
    for model in draw(names("m")):
        own = [instance for _, instance in zip(range(draw(st.integers(1, 3))), instances)]  # noqa: B905
        table = {"name": model, "per_instance": draw(LIMIT), "per_lane": draw(LIMIT)}
        if own:
            table["instances"] = own
        if draw(st.booleans()):
            table["keys"] = draw(
                st.lists(st.sampled_from([key["name"] for key in keys]), min_size=1, unique=True)
            )
        models.append(table)
    levels = {"per_key": draw(LIMIT), "per_key_model": draw(LIMIT)}
    if levels["per_key_model"]:
        for table in models:
            table.update(
                draw(st.sampled_from([{}, {"family": "f"}, {"family": models[0]["name"]}]))
            )
    return {"name": name, "api": "simulated", "keys": keys, "model": models, **levels, **limit}


@st.composite
def pools(draw):
    tables = {"schema": 1, "provider": [draw(providers(name)) for name in draw(names("p"))]}
    if draw(st.booleans()):
        tables["pool"] = draw(LIMIT)
    return tables


def to_toml(value):
    """Inline TOML of plain data; JSON strings are TOML strings."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {to_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return str(value).lower()


def load(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.toml"
        path.write_bytes(content)
        return load_pool(path, environ={}, overrides=Overrides())


def load_tables(tables):
    lines = (f"{json.dumps(field)} = {to_toml(value)}\n" for field, value in tables.items())
    return load("".join(lines).encode())


@examples(60)
@given(pools())
def test_valid_pool_loads_with_every_lane_on_existing_limits(tables):
    pool = load_tables(tables)

    for lane in pool.lanes:
        levels = [LEVELS.index(pool.limits[name].level) for name in lane.limits]
        assert levels == sorted(set(levels))
    assert len({lane.lane_id for lane in pool.lanes}) == len(pool.lanes)
    assert [limit.name for limit in pool.limits.values()] == list(pool.limits)


@examples(60)
@given(pools())
def test_valid_pool_has_a_lane_for_every_instance_and_key_of_a_model(tables):
    pool = load_tables(tables)

    assert [(lane.provider, lane.model, lane.instance, lane.key) for lane in pool.lanes] == [
        (provider["name"], model["name"], instance, key["name"])
        for provider in tables["provider"]
        for model in provider["model"]
        for instance in model.get("instances", [model["name"]])
        for key in provider["keys"]
        if key["name"] in model.get("keys", [key["name"]])
    ]


@examples(60)
@given(pools())
def test_valid_pool_lists_every_number_of_every_limit(tables):
    pool = load_tables(tables)
    listed = {value.name: value.value for value in pool.effective}

    for limit in pool.limits.values():
        numbers = {"workers": limit.workers, "qps": limit.qps, "rpm": limit.rpm, "tpm": limit.tpm}
        given_numbers = {f"{limit.name} {k}": v for k, v in numbers.items() if v is not None}
        assert given_numbers
        assert given_numbers.items() <= listed.items()


WORDS = """
    schema pool provider name api base_url keys env per_key per_key_model workers qps rpm tpm fixed
    adaptive model instances ports ports_env api_name latency kind median_s sigma persona skill
    rate_mode timeout_s api_key family multiply_by_prompt_types simulation_seed api_version
"""
FIELDS = st.sampled_from(WORDS.split())
SCALARS = (
    st.text(max_size=8)
    | st.sampled_from(["simulated", "openai", "fixed", "log-normal", "https://x.example", "key0"])
    | st.integers()
    | st.integers(-3, 3)
    | st.floats()
    | st.booleans()
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(FIELDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def damaged_pools(draw):
    """A valid pool in which one value, at any depth, was replaced."""
    tables = draw(pools())
    table = tables
    while True:
        field = draw(st.sampled_from(list(table) if isinstance(table, dict) else range(len(table))))
        inner = table[field]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            table[field] = draw(ANYTHING)
            return tables
        table = inner


def assert_loads_or_is_refused(load_it, found):
    try:
        pool = load_it(found)
    except ConfigError as refusal:
        message = str(refusal)
        assert "pool.toml: " in message
        assert "\n" not in message
    else:
        assert pool.lanes


@examples(150)
@given(damaged_pools())
@example({"schema": 1, "provider": [{"": 1}]})
def test_damaged_pool_loads_or_is_refused_in_one_line(tables):
    assert_loads_or_is_refused(load_tables, tables)


@examples(100)
@given(st.dictionaries(FIELDS, ANYTHING, max_size=4))
def test_arbitrary_tables_load_or_are_refused_in_one_line(tables):
    assert_loads_or_is_refused(load_tables, {"schema": 1, **tables})


@examples(100)
@given(
    st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
)
@example(b"a = 1\x0b\nb = ]")
def test_arbitrary_bytes_are_refused_in_one_line(content):
    assert_loads_or_is_refused(load, content)
