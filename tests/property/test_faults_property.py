"""Any faults file is a valid script or gets one clear refusal."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.faults.file import CapacityTable
from pytest_ultrapar.simulator.faults.kinds import KINDS, KNOWN_ERRORS, FaultTable
from pytest_ultrapar.simulator.faults.script import FaultScript
from tests.simulated_pool import faults_of, simulated_pool

POOL = simulated_pool(keys=("key0", "key1"), per_key=Limit("", "key", workers=5, qps=10))
WORDS = [
    "lab",
    "m",
    "key0",
    "start",
    "body",
    "length",
    "lab/*",
    *KNOWN_ERRORS,
]
VALUES = st.one_of(
    st.integers(-2, 600),
    st.floats(),
    st.booleans(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.dictionaries(st.sampled_from(["a", "retry-after", "b c"]), st.text(max_size=4), max_size=2),
)
FAULTS = st.builds(
    lambda kind, more: {"kind": kind, **more},
    st.sampled_from(list(KINDS)),
    st.dictionaries(st.sampled_from(FaultTable.__struct_fields__[1:]), VALUES, max_size=3),
)
CAPACITIES = st.dictionaries(
    st.sampled_from(CapacityTable.__struct_fields__), VALUES, min_size=1, max_size=3
)


def as_toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    return str(value)


@given(fault=FAULTS, capacity=CAPACITIES)
def test_entries_of_any_fields_are_a_script_or_refused(tmp_path_factory, fault, capacity):
    lines = ["[[fault]]", *(f"{name} = {as_toml(value)}" for name, value in fault.items())]
    lines += ["[[capacity]]", *(f"{name} = {as_toml(value)}" for name, value in capacity.items())]
    said, script = "", None
    try:
        script = faults_of(POOL, tmp_path_factory.mktemp("faults"), "\n".join(lines))
    except ConfigError as refusal:
        said = str(refusal)
    if script is None:
        assert "faults.toml" in said
        assert "\n" not in said
    else:
        assert msgspec.json.decode(msgspec.json.encode(script), type=FaultScript) == script


@pytest.mark.parametrize("kind", KINDS)
def test_kind_without_fields_is_refused_only_if_a_required_field_is_missing(tmp_path, kind):
    needs = {"error": "requires error or status"}
    text = f'[[fault]]\nkind = "{kind}"\n'
    if kind in needs:
        with pytest.raises(ConfigError, match=needs[kind]):
            faults_of(POOL, tmp_path, text)
    else:
        assert len(faults_of(POOL, tmp_path, text).faults) == 1
