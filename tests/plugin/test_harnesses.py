"""Unchanged third-party harnesses: `ultrapar gateway -- COMMAND` does not change their figures.

Each has an environment of its own, installed from the package index. `python -m tests.harnesses`
makes all of them wait for minutes.
"""

from __future__ import annotations

import shutil

import pytest

from tests.harnesses import NODES, TOOLS, install, scenes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=TOOLS)
def tool(request, tmp_path_factory):
    """A tool's name, and the folder of its environment."""
    name = request.param
    if name in NODES and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    environments = tmp_path_factory.mktemp("environments")
    install(name, environments)
    return name, environments


def test_harness_has_the_same_figures_through_the_gateway_in_a_queue_and_a_storm(tool, tmp_path):
    alone = scenes.direct(*tool, tmp_path / "direct")
    ours = scenes.storm(*tool, tmp_path / "ours")
    assert (ours.code, ours.found) == alone, ours.said
    assert ours.found
    assert ours.n_refused > 0
    assert ours.most_in_flight <= 3
    answered = [row for row in ours.rows if row["outcome"] == "solved"]
    assert len(answered) >= 20
    # If a client leaves, as when it needs no more of a stream, the usage of its request is unknown.
    assert all(row["cost"] > 0 for row in answered)
    assert {row["param.client"] != "" for row in answered} == {True}


def test_ctrl_c_ends_a_harness_and_keeps_its_answers(tool, tmp_path):
    ours = scenes.ctrl_c(*tool, tmp_path / "ours")
    assert ours.code != 0
    assert ours.outcomes["solved"] >= 4
    assert ours.outcomes.keys() <= {"solved", "skipped"}
    assert "results in " in ours.said
    assert f"{ours.outcomes['solved']} solved" in ours.said
