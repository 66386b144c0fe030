"""The shape of the package: who may import whom, what stays light."""

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
"""All parts from the bottom up; a part imports only what stands below it."""
CORE = set().union(*LEVELS[: LEVELS.index({"session"})])
HOSTS = {"pytest", "_pytest", "pluggy", "xdist", "execnet"}
STATE_OF_THE_BROKER = {"groups", "lanes", "limits", "retry_budget", "waiting"}
"""Their objects refer to each other both ways, so what they import for types has no order."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


@functools.cache
def imports(path: Path) -> set[str]:
    """Dotted names of all that a file imports anywhere, `from a import b` as both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
def test_parts_import_only_what_stands_below():
    """For types, too. The core knows neither pytest nor xdist, and no part the suites."""
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
    """With its folders, and for types, too: else no chapter could be read first."""
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        names = {module_name(path): path for path in sources(folder) if path.stem != "__init__"}
        graph = {name: imports(path) & names.keys() for name, path in names.items()}
        state = {f"pytest_ultrapar.broker.{name}" for name in STATE_OF_THE_BROKER}
        for name in names.keys() & state:
            graph[name] -= imports_for_types(names[name]) & state
        TopologicalSorter(graph).prepare()


def test_workflow_domain_knows_nothing_of_lanes():
    for path in sources(ROOT / "bench_suites" / "workflow"):
        strange = parts_imported(path) & {"broker", "engine", "pool"}
        assert not strange, f"{path.relative_to(ROOT)} imports {sorted(strange)}"


def modules_loaded_by(module: str) -> set[str]:
    """Dotted names that a fresh interpreter holds after importing a module."""
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def loaded_by(module: str) -> set[str]:
    """Top-level names that a fresh interpreter holds after importing a module."""
    return {name.split(".")[0] for name in modules_loaded_by(module)}


ARITHMETIC = {"numpy", "scipy"}
"""Up to a second to load: for processes that nobody waits for, plans and the command line."""


def test_plugin_is_light_for_runs_without_a_pool():
    heavy = {"msgspec", "httpx", "aiohttp", "pyarrow", "uvloop", "rich", "uvicorn", "asyncio"}
    heavy |= ARITHMETIC
    loaded = loaded_by("pytest_ultrapar.plugin")
    assert "pytest_ultrapar" in loaded
    assert loaded & heavy == set()


def test_worker_imports_nothing_that_only_the_controller_needs():
    loaded = loaded_by("pytest_ultrapar.session.worker")
    assert "msgspec" in loaded
    unused = {"pyarrow", "rich", "uvicorn", "hypothesis", "pytest_benchmark", *ARITHMETIC}
    assert loaded & unused == set()


@pytest.mark.slow
def test_controller_imports_nothing_that_only_workers_need():
    loaded = loaded_by(
        "pytest_ultrapar.coordinator.coordinator, pytest_ultrapar.coordinator.controller"
    )
    assert "msgspec" in loaded
    assert loaded & {"aiohttp", "httpx", "uvloop", "asyncio", "pyarrow", *ARITHMETIC} == set()


@pytest.mark.slow
def test_coordinating_a_run_and_its_gate_reads_no_table_in_its_own_process():
    loaded = loaded_by(
        "pytest_ultrapar.coordinator.coordinator, pytest_ultrapar.coordinator.run_gate"
    )
    assert "msgspec" in loaded
    assert loaded & {"pyarrow", "hypothesis", "pytest_benchmark", *ARITHMETIC} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["coordinator.live", "coordinator.finish", "coordinator.local", "analysis.run_summary"],
)
def test_coordinating_process_leaves_arithmetic_to_others(module):
    """It shows progress, waits for the summary and prints it."""
    loaded = loaded_by(f"pytest_ultrapar.{module}")
    assert "msgspec" in loaded
    assert loaded & ARITHMETIC == set()


def test_names_that_suites_import_load_no_http_client():
    """`--collect-only` lists the cases of 12,200 without it; a run loads it when it asks them."""
    loaded = loaded_by("pytest_ultrapar; pytest_ultrapar.Llm, pytest_ultrapar.prefetch")
    assert "msgspec" in loaded
    assert loaded & {"aiohttp", "httpx", "uvloop", "pyarrow", *ARITHMETIC} == set()


@pytest.mark.slow
def test_run_asks_before_it_loads_servers_forecasts_and_summaries():
    loaded = modules_loaded_by(
        "pytest_ultrapar.coordinator.coordinator, pytest_ultrapar.coordinator.local,"
        " pytest_ultrapar.session.prefetcher"
    )
    assert "aiohttp" in loaded
    unused = ("simulator.process", "simulator.served", "simulator.faults.script")
    unused += (
        "analysis.plan.forecast",
        "coordinator.finish",
        "report.summary",
    )
    assert {f"pytest_ultrapar.{name}" for name in unused} & loaded == set()


@pytest.mark.slow
def test_process_beside_a_run_takes_breaks_before_it_loads_anything():
    loaded = modules_loaded_by("pytest_ultrapar.analysis.compactor")
    assert "pytest_ultrapar.analysis" in loaded
    unused = {
        "msgspec",
        "subprocess",
        "argparse",
        "logging",
        "pytest_ultrapar.analysis.compactor_process",
    }
    assert loaded & unused == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["coordinator.controller", "session.worker", "coordinator.local"]
)
def test_run_without_a_gate_or_a_check_imports_none(module):
    loaded = modules_loaded_by(f"pytest_ultrapar.coordinator.coordinator, pytest_ultrapar.{module}")
    assert "pytest_ultrapar.session.settings" in loaded
    unused = (
        "pytest_ultrapar.compare",
        "pytest_ultrapar.coordinator.check",
        "pytest_ultrapar.cluster",
        "redis",
    )
    assert {name for name in loaded if name.startswith(unused)} == set()


@pytest.mark.slow
def test_help_of_the_command_imports_nothing_heavy():
    loaded = modules_loaded_by(", ".join(["pytest_ultrapar.cli", *SUBCOMMANDS]))
    heavy = {
        "pytest",
        "aiohttp",
        "asyncio",
        "pyarrow",
        "pytest_ultrapar.coordinator.check.pool_check",
    }
    assert heavy & loaded == set()


@pytest.mark.slow
def test_process_of_the_broker_loads_an_http_client_only_to_ask_servers():
    loaded = modules_loaded_by("pytest_ultrapar.broker.server")
    assert "asyncio" in loaded
    heavy = {"aiohttp", "httpx", "pyarrow", "pytest_ultrapar.engine", "rich", "uvicorn", "xdist"}
    assert loaded & (heavy | {"urllib.request", "http.client"}) == set()


def all_sources() -> list[Path]:
    others = ("bench_suites", "benchmarks", "tests")
    return [*sources(PACKAGE), *(path for name in others for path in sources(ROOT / name))]


OWN_FILES = {"clock", "child", "worker_watch", "script", "frame"}
"""Modules that read files of the system's or of the package alone."""


def test_files_are_opened_in_one_way_that_refuses_pipes():
    """A path that somebody names, and a file of a run from elsewhere, may be anything."""
    for path in sources(PACKAGE):
        found = re.findall(r"\.read_(?:bytes|text)\(|\.open\(\"r", path.read_text(encoding="utf-8"))
        assert not found or path.stem in OWN_FILES, f"{path.relative_to(PACKAGE)} has {found}"


def test_no_module_is_a_drawer():
    names = {path: {path.stem.removeprefix("test_"), path.parent.name} for path in all_sources()}
    assert [str(path) for path, own in names.items() if own & FORBIDDEN_NAMES] == []
