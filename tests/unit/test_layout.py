"""The layout of the package: allowed imports, and processes that stay light."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pytest_ultrapar
from pytest_ultrapar.cli import SUBCOMMANDS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(pytest_ultrapar.__file__).parent
LEVELS = (
    {"errors", "records"},
    {"exchanges", "system"},
    {"apis"},
    {"pool"},
    {"broker"},
    {"engine", "store"},
    {"analysis"},
    {"report", "simulator"},
    {"compare", "cluster"},
    {"session"},
    {"coordinator"},
    {"merge", "hooks", "fixtures"},
    {"plugin", "cli", "testing"},
)
"""All parts from the bottom up. A part imports only lower parts."""
CORE = set().union(*LEVELS[: LEVELS.index({"session"})])
HOSTS = {"pytest", "_pytest", "pluggy", "xdist", "execnet"}
STATE_OF_THE_BROKER = {"groups", "lanes", "limits", "refusal_cause", "retry_budget", "waiting"}
"""Their objects refer to each other both ways, so their imports for types have no order."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


@functools.cache
def imports(path: Path) -> set[str]:
    """The dotted names of all imports of a file; `from a import b` gives `a` and `a.b`."""
    found: set[str] = set()
    # Visit only statements: expressions contain no import and are most of the tree.
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in nodes:
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            nodes += inner if isinstance(inner, list) else ()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path}: relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imports_for_types(path: Path) -> set[str]:
    """Modules that a file imports for type checkers only."""
    return {
        line.module or ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
        if isinstance(line, ast.ImportFrom)
    }


def parts_imported(path: Path) -> set[str]:
    """First names below `pytest_ultrapar` that a file imports."""
    own = (name.split(".") for name in imports(path))
    names = {name[1] for name in own if name[0] == "pytest_ultrapar" and len(name) > 1}
    return {
        name for name in names if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    }


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def sources(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found, f"{folder} has no source files"
    return found


def of_part(name: str) -> list[Path]:
    single = PACKAGE / f"{name}.py"
    return [single] if single.is_file() else sources(PACKAGE / name)


def test_every_part_has_a_level():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    assert sorted(part for level in LEVELS for part in level) == sorted(folders | modules)


@pytest.mark.cpu_s(4)
def test_parts_import_only_lower_parts():
    """Imports for types count. The core imports neither pytest nor xdist, and no part a suite."""
    below: set[str] = set()
    for level in LEVELS:
        for part in level:
            for path in of_part(part):
                strange = parts_imported(path) - below - {part}
                strange |= {name.split(".")[0] for name in imports(path)} & (
                    {"bench_suites", "benchmarks", "tests", *(HOSTS if part in CORE else ())}
                )
                assert not strange, f"{path.relative_to(PACKAGE)} imports {sorted(strange)}"
        below |= level


def test_map_of_the_code_shows_the_levels_in_their_order():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("| part of", 1)[1].split("\n\n", 1)[0]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    rows = [{name.strip("` /") for name in first.split(",")} for first in firsts]
    assert tuple(rows) == LEVELS


@pytest.mark.cpu_s(4)
def test_modules_of_a_folder_import_each_other_one_way():
    """Subfolders and imports for types count: each module can be read before its users."""
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        names = {module_name(path): path for path in sources(folder) if path.stem != "__init__"}
        graph = {name: imports(path) & names.keys() for name, path in names.items()}
        state = {f"pytest_ultrapar.broker.{name}" for name in STATE_OF_THE_BROKER}
        for name in names.keys() & state:
            graph[name] -= imports_for_types(names[name]) & state
        TopologicalSorter(graph).prepare()


def test_workflow_domain_does_not_import_lanes():
    for path in sources(ROOT / "bench_suites" / "workflow"):
        strange = parts_imported(path) & {"broker", "engine", "pool"}
        assert not strange, f"{path.relative_to(ROOT)} imports {sorted(strange)}"


ARITHMETIC = {"numpy", "scipy"}
"""They take up to a second to load: only plans, commands and background processes may."""
HTTP = {"aiohttp", "httpx", "uvloop"}
OURS = "pytest_ultrapar"
RUN = f"{OURS}.coordinator.coordinator, {OURS}.coordinator"
LIGHT = {
    # A user of the package: its imports, and the modules that these must not load.
    "a run without a pool": (
        f"{OURS}.plugin",
        {"msgspec", "pyarrow", "rich", "uvicorn", "asyncio", *HTTP, *ARITHMETIC},
    ),
    # `--collect-only` lists 12,200 cases without an HTTP client; only a run loads one.
    "a suite": (f"{OURS}; {OURS}.Llm, {OURS}.prefetch", {"pyarrow", *HTTP, *ARITHMETIC}),
    "a pool": (
        f"{OURS}.pool.load_pool as c, {OURS}.pool.secret as s;"
        "s.read_secrets(c.load_pool('pool.toml', environ={}, overrides=c.Overrides()), {})",
        {"pyarrow", "httpx", "aiohttp", "uvicorn", "asyncio", "xdist", "difflib"},
    ),
    "the tables of a benchmark": (
        "bench_suites.workflow_results.plugin",
        {"pyarrow", "msgspec", "numpy", "asyncio", "bench_suites.workflow"},
    ),
    "the start of a simulator": (
        ", ".join(
            f"{OURS}.{name}" for name in ("testing", "simulator.process", "simulator.command")
        ),
        {"uvicorn", "uvloop", "httptools"},
    ),
    "a worker": (
        f"{OURS}.session.worker",
        {"pyarrow", "rich", "uvicorn", "hypothesis", "pytest_benchmark", *ARITHMETIC},
    ),
    "a controller": (f"{RUN}.xdist_session", {"asyncio", "pyarrow", *HTTP, *ARITHMETIC}),
    "a gate": (f"{RUN}.run_gate", {"pyarrow", "hypothesis", "pytest_benchmark", *ARITHMETIC}),
    "a live view": (f"{OURS}.coordinator.live", ARITHMETIC),
    "the end of a run": (f"{OURS}.coordinator.finish, {OURS}.analysis.run_summary", ARITHMETIC),
    "a run before its first request": (
        f"{RUN}.local_session, {OURS}.session.prefetcher",
        {
            *(f"{OURS}.simulator.{name}" for name in ("process", "served_pool", "faults.script")),
            *(f"{OURS}.{name}" for name in ("coordinator.finish", "report.summary")),
            f"{OURS}.analysis.plan.forecast",
            *ARITHMETIC,
        },
    ),
    # The compactor takes breaks before it loads anything.
    "a compactor": (
        f"{OURS}.analysis.compaction_child",
        {"msgspec", "subprocess", "argparse", "logging", f"{OURS}.analysis.compaction_process"},
    ),
    **{
        f"a run without gate, check or cluster: {name}": (
            f"{OURS}.coordinator.coordinator, {OURS}.{name}",
            {f"{OURS}.compare", f"{OURS}.coordinator.check", f"{OURS}.cluster", "redis"},
        )
        for name in ("coordinator.xdist_session", "session.worker", "coordinator.local_session")
    },
    "a run without telemetry": (
        f"{OURS}.session.worker, {OURS}.coordinator.local_session",
        {"opentelemetry"},
    ),
    "the help of the command": (
        ", ".join([f"{OURS}.cli", *SUBCOMMANDS]),
        {"pytest", "aiohttp", "asyncio", "pyarrow", f"{OURS}.coordinator.check.pool_check"},
    ),
    # An HTTP client is loaded only to ask servers for their load.
    "a broker": (
        f"{OURS}.broker.server",
        {"httpx", "aiohttp", "urllib.request", "http.client", "pyarrow", "xdist", "rich"}
        | {"uvicorn", f"{OURS}.engine"},
    ),
}


QUICK_S = {"a run without a pool": 1, "a suite": 1, "a worker": 2, "a pool": 1}
marked = [
    pytest.param(who, marks=pytest.mark.cpu_s(QUICK_S[who]) if who in QUICK_S else pytest.mark.slow)
    for who in LIGHT
]


@pytest.mark.parametrize("who", marked)
def test_process_loads_nothing_that_it_does_not_need(who):
    modules, unused = LIGHT[who]
    script = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert loaded & unused == set()


def all_sources() -> list[Path]:
    others = ("bench_suites", "benchmarks", "tests")
    return [*sources(PACKAGE), *(path for name in others for path in sources(ROOT / name))]


OWN_FILES = {
    "clock",
    "child",
    "worker_watch",
    "ledger_script",
    "page_template",
    "vocabulary",
    "vendors",
}
"""Modules that read only files of the system or of the package."""


def test_files_are_opened_in_one_way_that_refuses_pipes():
    """A path of a user, or a file in a run from elsewhere, may be a pipe or a device."""
    for path in sources(PACKAGE):
        found = re.findall(r"\.read_(?:bytes|text)\(|\.open\(\"r", path.read_text(encoding="utf-8"))
        assert not found or path.stem in OWN_FILES, f"{path.relative_to(PACKAGE)} has {found}"


def test_no_module_is_named_utils_or_helpers():
    names = {path: {path.stem.removeprefix("test_"), path.parent.name} for path in all_sources()}
    assert [str(path) for path, own in names.items() if own & FORBIDDEN_NAMES] == []
