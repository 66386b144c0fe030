"""The examples in docs/reference/simulator.md and in the help are valid."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from pytest_ultrapar.simulator import command
from pytest_ultrapar.simulator.faults.file import load_faults

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
def test_every_example_of_a_faults_file_is_valid(tmp_path, pool, text):
    path = tmp_path / "faults.toml"
    path.write_text(text, encoding="utf-8")
    script = load_faults(path, pool())
    n_entries = len(script.faults) + len(script.capacities)
    assert n_entries == text.count("[[")


def test_example_in_the_help_is_valid(tmp_path, pool):
    text = command.DESCRIPTION.split("simulator.md):\n", 1)[1]
    path = tmp_path / "faults.toml"
    path.write_text(textwrap.dedent(text).replace("lab/", "sim/"), encoding="utf-8")
    script = load_faults(path, pool())
    assert (len(script.faults), len(script.capacities)) == (2, 1)


def test_example_of_a_knee_is_valid(pool):
    (text,) = [text for text in EXAMPLES if "[[" not in text]
    (provider,) = pool(text).providers
    assert provider.models[0].simulation.latency.knee == 64
