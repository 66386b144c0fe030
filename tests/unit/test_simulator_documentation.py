"""What docs/reference/simulator.md says is what the server does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from pytest_ultrapar.simulator import command
from pytest_ultrapar.simulator.faults import kinds
from pytest_ultrapar.simulator.faults.file import CapacityTable, FaultsFile, load_faults
from pytest_ultrapar.simulator.faults.kinds import KNOWN_ERRORS, FaultTable

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "simulator.md").read_text(
    encoding="utf-8"
)
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
POOL = """
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "key0" }, { name = "key1" }]
per_key = { workers = 5, qps = 10 }
"""
MODEL = '[[provider.model]]\nname = "echo"\n'


@pytest.fixture
def pool(load):
    return lambda more="": load(POOL + more + MODEL)


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "[[" in text])
def test_every_example_of_a_faults_file_is_one(tmp_path, pool, text):
    path = tmp_path / "faults.toml"
    path.write_text(text, encoding="utf-8")
    script = load_faults(path, pool())
    n_entries = len(script.faults) + len(script.capacities) + len(script.rate_headers)
    assert n_entries == text.count("[[")


def test_example_of_the_help_is_one(tmp_path, pool):
    text = command.DESCRIPTION.split("has all of it):\n", 1)[1]
    path = tmp_path / "faults.toml"
    path.write_text(textwrap.dedent(text).replace("lab/", "sim/"), encoding="utf-8")
    script = load_faults(path, pool())
    assert (len(script.faults), len(script.capacities)) == (2, 1)


def test_example_of_a_knee_is_a_latency(pool):
    (text,) = [text for text in EXAMPLES if "[[" not in text]
    (provider,) = pool(text).providers
    assert provider.models[0].simulation.latency.knee == 64


def test_every_kind_has_an_example(tmp_path):
    shown = set(re.findall(r'^kind = "(\w+)"$', "".join(EXAMPLES), re.MULTILINE))
    assert shown == set(kinds.KINDS)


def test_every_field_word_and_known_error_is_explained():
    fields = {
        *FaultTable.__struct_fields__,
        *CapacityTable.__struct_fields__,
        *FaultsFile.__struct_fields__,
    }
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert fields <= named
    words = {*get_args(kinds.MalformedForm), *get_args(kinds.FinishReason), *kinds.KINDS}
    assert {word for word in words if f'"{word}"' not in PAGE} == set()
    assert {error for error in KNOWN_ERRORS if f"`{error}`" not in PAGE} == set()
