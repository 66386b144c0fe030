"""The tool beside other clients: what each is told, what is said of them."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.overhead.command import Checkout, measured_environment
from benchmarks.overhead.comparison import RAW
from benchmarks.overhead.measurement import Options
from benchmarks.overhead.peers import COOPERATIVE, peers_round
from benchmarks.overhead.workload import EPISODES

pytestmark = pytest.mark.slow

ONE_AFTER_ANOTHER = """
import asyncio
import inspect

import pytest

LOOP = asyncio.new_event_loop()


def pytest_addoption(parser):
    parser.addoption("--max-asyncio-tasks", type=int)


def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio_cooperative: a coroutine")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    if inspect.iscoroutinefunction(fixturedef.func):
        value = LOOP.run_until_complete(fixturedef.func())
        fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
        return value


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in ("session", "number")}
    LOOP.run_until_complete(pyfuncitem.obj(**arguments))
    return True
"""
"""Stands in for pytest-asyncio-cooperative, which cannot be installed beside other tests."""


def test_tool_and_peers_run_the_same_cases(tmp_path):
    entry_points = "[pytest11]\none-after-another = one_after_another\n"
    with zipfile.ZipFile(
        wheel(
            tmp_path, "one_after_another", {"one_after_another.py": ONE_AFTER_ANOTHER}, entry_points
        )
    ) as archive:
        archive.extractall(tmp_path / "packages")
    workload = replace(EPISODES, n_cases=4, n_turns=6)
    with measured_environment() as variables:
        variables["PYTHONPATH"] = str(tmp_path / "packages")
        options = Options(Checkout(variables), cooperative=Path(sys.executable))
        rows = peers_round(workload, options)
    assert list(rows) == ["-n 0", COOPERATIVE, RAW, "-n 0 / cooperative", "-n 0 / raw"]
    for client in ("-n 0", COOPERATIVE, RAW):
        row = rows[client]
        assert row["n_429"] == 0
        assert row["peak_in_flight"] == (1 if client == COOPERATIVE else 4)
        assert min(row["first_s"], row["phase_s"], row["end_s"]) > 0.0
        assert row["first_s"] + row["phase_s"] + row["end_s"] == pytest.approx(row["wall_s"])
    assert rows["-n 0 / raw"]["wall_s"] == rows["-n 0"]["wall_s"] / rows[RAW]["wall_s"]


def wheel(folder, name, files, entry_points=""):
    """A package that needs no index."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    files = files | {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nTag: py3-none-any\n"
        "Root-Is-Purelib: true\n",
        f"{about}/entry_points.txt": entry_points,
    }
    files[f"{about}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return path
