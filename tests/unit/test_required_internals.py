"""A run looks up all internals of pytest and xdist that it uses, before it starts."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import pytest_ultrapar
from pytest_ultrapar.session import required_internals

ROOT = Path(__file__).parents[2]
PACKAGE = Path(pytest_ultrapar.__file__).parent


def at_run_time(node: ast.AST):
    """All nodes below this one, without imports for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from at_run_time(child)


@pytest.mark.slow
@pytest.mark.cpu_s(3)
def test_every_name_that_is_imported_is_looked_up():
    listed = {
        f"{module}.{name.partition('.')[0]}"
        for modules in (required_internals._PYTEST, required_internals._XDIST)
        for module, names in modules.items()
        for name in names
    } | {*required_internals._PYTEST, *required_internals._XDIST}
    imported = {
        f"{node.module}.{alias.name}"
        for path in PACKAGE.rglob("*.py")
        for node in at_run_time(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("_pytest", "xdist"))
        for alias in node.names
    }
    assert imported - listed == set()
    assert len(imported) > 5


@pytest.mark.parametrize("project", required_internals.TESTED)
def test_releases_since_the_oldest_tested_one_can_be_installed(project):
    oldest, newest = map(Version, required_internals.TESTED[project])
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = next(one for one in map(Requirement, known["dependencies"]) if one.name == project)
    assert str(required.specifier) == f">={oldest}"
    installed = Version(version(project))
    assert oldest.release <= installed.release[:2]
    assert installed.release[:2] <= newest.release


def test_release_newer_than_the_tested_ones_is_reported(monkeypatch):
    assert [*required_internals.untested()] == []
    releases = {"pytest": "9.2.7", "pytest-xdist": "3.10.0.dev1"}
    monkeypatch.setattr(required_internals, "version", releases.get)
    assert [*required_internals.untested()] == [
        "pytest-xdist 3.10.0.dev1 is newer than the tested releases: 3.6 to 3.8"
    ]


@pytest.mark.parametrize(
    ("module", "name", "missing"),
    [
        ("_pytest.skipping", "evaluate_skip_marks", "_pytest.skipping.evaluate_skip_marks"),
        ("_pytest.capture.CaptureFixture", "_start", "_pytest.capture.CaptureFixture._start"),
        (
            "xdist.workermanage.NodeManager",
            "setup_node",
            "xdist.workermanage.NodeManager.setup_node",
        ),
        (
            "xdist.workermanage.WorkerController",
            "process_from_remote",
            "xdist.workermanage.WorkerController.process_from_remote",
        ),
    ],
)
def test_missing_name_is_reported_in_one_sentence(monkeypatch, module, name, missing):
    # Import the module whose name is deleted next.
    import_module("xdist.dsession")
    monkeypatch.delattr(f"{module}.{name}")
    with pytest.raises(pytest.UsageError) as refused:
        required_internals.look_up(workers=True)
    project = "pytest-xdist" if missing.startswith("xdist") else "pytest"
    tested = " to ".join(required_internals.TESTED[project])
    assert str(refused.value) == (
        f"{project} {version(project)} has no {missing}, which pytest-ultrapar needs for a run "
        f"with a pool; tested with {project} {tested}"
    )


def test_instance_attribute_counts_if_a_method_sets_it():
    class Known:
        def __init__(self):
            self._set = 1

    assert required_internals._has(Known, "_set")
    assert not required_internals._has(Known, "_gone")
