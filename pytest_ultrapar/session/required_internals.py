"""The internals of pytest and xdist that a run with a pool needs, and a check that they exist.

Internals may change with any release. A run looks up all of them before it imports the modules that
use them. So if a name is missing in some release, the user gets a sentence instead of a traceback.
A session without a pool uses no internals.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from inspect import get_annotations
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTED = {"pytest": ("8.3", "9.2"), "pytest-xdist": ("3.6", "3.8")}
"""The oldest and the newest minor release that CI tests; `pyproject.toml` allows later ones."""

_PYTEST = {
    "_pytest._code.code": ("TracebackEntry._rawentry",),
    "_pytest._io": ("TerminalWriter._file", "TerminalWriter._current_line"),
    "_pytest.assertion": ("pytest_runtest_protocol",),
    "_pytest.assertion.rewrite": ("_call_reprcompare", "_get_maxsize_for_saferepr"),
    "_pytest.capture": (
        "CaptureFixture._start",
        "CaptureFixture._capture",
        "CaptureManager._global_capturing",
        "CaptureManager.global_and_fixture_disabled",
        "FDCaptureBase.syscapture",
        "MultiCapture.out",
        "MultiCapture.err",
        "SysCaptureBase._old",
        "SysCaptureBase.tmpfile",
    ),
    "_pytest.compat": ("NOTSET",),
    "_pytest.fixtures": (
        "FixtureDef._finalizers",
        "FixtureDef.cached_result",
        "FixtureRequest._fixture_defs",
        "FuncFixtureInfo.name2fixturedefs",
        "SubRequest",
    ),
    "_pytest.logging": (
        "LoggingPlugin.caplog_handler",
        "LoggingPlugin.formatter",
        "LoggingPlugin.log_cli_handler",
        "LoggingPlugin.log_file_handler",
        "LoggingPlugin.log_level",
        "LoggingPlugin.report_handler",
    ),
    "_pytest.main": ("Session._setupstate",),
    "_pytest.mark.structures": ("NodeKeywords._markers",),
    "_pytest.nodes": ("Item._report_sections",),
    "_pytest.python": (
        "Function._fixtureinfo",
        "Function._initrequest",  # makes `_request`
        "Metafunc._arg2fixturedefs",
        "Metafunc._calls",
        "get_direct_param_fixture_func",
        "pytest_pyfunc_call",
    ),
    "_pytest.runner": ("SetupState.setup", "SetupState.stack", "_update_current_test_var"),
    "_pytest.scope": ("Scope",),
    "_pytest.skipping": ("evaluate_skip_marks", "evaluate_xfail_marks"),
    "_pytest.warnings": ("catch_warnings_for_item", "parse_warning_filter"),
}
_XDIST = {
    "xdist.dsession": (
        "DSession.config",
        "DSession.loop_once",
        "DSession.nodemanager",
        "DSession.queue",
        "DSession.shouldstop",
    ),
    "xdist.remote": (
        "WorkerInteractor.handle_command",
        "WorkerInteractor.sendevent",
        "WorkerInteractor.torun",
    ),
    "xdist.workermanage": (
        "NodeManager.group",
        "NodeManager.setup_node",
        "WorkerController.gateway",
        "WorkerController.notify_inproc",
        "WorkerController.process_from_remote",
        "WorkerController.send_runtest_some",
        "WorkerController.shutting_down",
    ),
}


def look_up(*, workers: bool) -> None:
    """Check that all names exist. Called before any module that uses them is imported.

    Args:
        workers: Whether the run has xdist's workers. If not, xdist is not imported.

    Raises:
        pytest.UsageError: A name is missing; the message contains the first missing name and the
            tested releases.
    """
    parts = {"pytest": _PYTEST} | ({"pytest-xdist": _XDIST} if workers else {})
    for project, modules in parts.items():
        for module, names in modules.items():
            for name in names:
                if not _is_there(module, name):
                    tested = " to ".join(TESTED[project])
                    raise pytest.UsageError(
                        f"{project} {version(project)} has no {module}.{name}, which pytest-"
                        f"ultrapar needs for a run with a pool; tested with {project} {tested}"
                    )


def untested() -> Iterator[str]:
    """A sentence for each installed release that is newer than the tested releases."""
    for project, tested in TESTED.items():
        found = version(project)
        if _minor(found) > _minor(tested[-1]):
            yield f"{project} {found} is newer than the tested releases: {' to '.join(tested)}"


def _minor(release: str) -> list[int]:
    return [int(part) for part in release.split(".")[:2]]


def _is_there(module: str, name: str) -> bool:
    try:
        owner: Any = import_module(module)
    except ImportError:
        return False
    first, _, attribute = name.partition(".")
    if not hasattr(owner, first):
        return False
    return not attribute or _has(getattr(owner, first), attribute)


def _has(owner: type, attribute: str) -> bool:
    """Whether a class defines or annotates an attribute, or its `__init__` sets the attribute."""
    return hasattr(owner, attribute) or any(
        attribute in get_annotations(base)
        or attribute in getattr(getattr(base, "__init__", None), "__code__", _NO_CODE).co_names
        for base in owner.__mro__
    )


_NO_CODE = (lambda: None).__code__
