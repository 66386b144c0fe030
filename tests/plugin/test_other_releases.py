"""A release of pytest or xdist whose internals we do not know ends a run in one sentence."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from pytest_ultrapar import plugin
from tests.plugin.conftest import SUITE


@pytest.mark.parametrize(("options", "name"), [((), "pytest"), (("-n1",), "pytest-xdist")])
def test_unknown_release_ends_a_run_in_one_sentence(project, monkeypatch, options, name):
    project.pytester.makepyfile(test_suite=SUITE + "def test_it(answer): pass\n")
    monkeypatch.setattr(
        plugin, "version", lambda project: "99.1.0" if project == name else version(project)
    )
    result = project.pytester.runpytest_inprocess("--ultrapar-pool=pool.toml", *options)
    assert result.ret == 4
    known = " and ".join(plugin.KNOWN_TO_WORK[name])
    said = f"relies on internals of {name}; known to work are {known}, not 99.1.0"
    assert said in result.stderr.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    assert not project.server.prompts
