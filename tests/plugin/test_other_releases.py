"""A pytest or xdist without a needed name: an error if there is a pool, otherwise no effect."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import SUITE

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "module", "name"),
    [
        ((), "_pytest.skipping", "evaluate_skip_marks"),
        (("-n1",), "xdist.workermanage.NodeManager", "setup_node"),
    ],
)
def test_missing_name_ends_only_runs_that_need_it(project, monkeypatch, options, module, name):
    project.pytester.makepyfile(test_suite=SUITE + "def test_it(answer): pass\n")
    monkeypatch.delattr(f"{module}.{name}")
    result = project.pytester.runpytest_inprocess("--ultrapar-pool=pool.toml", *options)
    assert f"{module}.{name}, which pytest-ultrapar needs" in project.refusal(result)
