"""The tool beside other clients: their environments, what each is told, what is said of them."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from bench_suites.overhead.__main__ import main
from bench_suites.overhead.command import Checkout, measured_environment
from bench_suites.overhead.command_line import Options
from bench_suites.overhead.comparison import RAW, bare_command, raw_client
from bench_suites.overhead.environments import cooperative_python, environment
from bench_suites.overhead.peers import COOPERATIVE, peers_lines, peers_round, quotient
from bench_suites.overhead.workload import EPISODES, LONG_TAIL, SMALL, WIDE
from pytest_ultrapar.errors import ConfigError
from tests.unit.goal_table import goals

HERE = Checkout({})
URL = "http://127.0.0.1:1"
FIGURES = {
    "efficiency": 0.9,
    "first_s": 1.0,
    "phase_s": 1.5,
    "end_s": 0.5,
    "wall_s": 3.0,
    "cpu_ms_per_case": 1.0,
}


def one_round(**tool):
    """As `peers_round` returns it, from figures of the tool."""
    rows = {"-n 0": FIGURES | tool, COOPERATIVE: FIGURES, RAW: FIGURES}
    return rows | {
        f"-n 0 / {other}": quotient(rows["-n 0"], rows[other]) for other in (COOPERATIVE, RAW)
    }


def test_bare_clients_get_the_same_orders(tmp_path):
    cooperative = bare_command(
        WIDE, "cooperative_client", Path("other"), url=URL, directory=tmp_path
    )
    raw = raw_client(WIDE)(url=URL, directory=tmp_path)
    assert cooperative[:3] == ["other", "-m", "bench_suites.overhead.cooperative_client"]
    assert raw[:3] == [sys.executable, "-m", "bench_suites.overhead.raw_client"]
    assert cooperative[3:] == raw[3:]


@pytest.mark.parametrize(
    ("workload", "tool", "verdicts"),
    [
        (
            WIDE,
            {"efficiency": 0.8, "wall_s": 3.2, "cpu_ms_per_case": 1.2, "first_s": 1.4},
            {
                "-n 0 / raw: efficiency": ["0.8889", ">= 0.95", "NOT met"],
                "-n 0 / cooperative: cpu_ms_per_case": ["1.2", "<= 1.1", "NOT met"],
                "-n 0 / cooperative: wall_s": ["1.067", "<= 1.1", "met"],
                "-n 0 / cooperative: first_s": ["1.4", "<= 1.5", "met"],
            },
        ),
        (
            SMALL,
            {"wall_s": 3.3, "first_s": 1.6},
            {
                "-n 0 / cooperative: wall_s": ["1.1", "<= 1.08", "NOT met"],
                "-n 0 / cooperative: first_s": ["1.6", "<= 1.5", "NOT met"],
            },
        ),
        (
            LONG_TAIL,
            {"wall_s": 2.4},
            {
                "-n 0 / cooperative: wall_s": ["0.8", "<= 0.9", "met"],
                "-n 0 / cooperative: first_s": ["1", "<= 1.5", "met"],
            },
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_peers_are_judged_by_the_goals_of_the_workload(workload, tool, verdicts):
    assert (
        goals(*peers_lines(workload, [one_round(**tool)], Options(HERE, pinned=True))) == verdicts
    )


def test_ratios_to_peers_are_medians_of_rounds_not_ratios_of_medians():
    rounds = [one_round(wall_s=3.0), one_round(wall_s=4.5), one_round(wall_s=6.0)]
    rounds[0]["-n 0 / cooperative"]["wall_s"] = 5.0
    text = "\n".join(peers_lines(WIDE, rounds, Options(HERE, pinned=True)))
    assert "2.000 [1.500-5.000]" in text
    assert goals(text)["-n 0 / cooperative: wall_s"] == ["2", "<= 1.1", "NOT met"]


def test_peers_are_not_judged_unpinned_or_with_workers_alone():
    assert goals(*peers_lines(WIDE, [one_round()], Options(HERE))) == {}
    rows = {"-n 2": FIGURES, RAW: FIGURES}
    assert goals(*peers_lines(WIDE, [rows], Options(HERE, n=(2,), pinned=True))) == {}


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_environment_without_the_cooperative_plugin_is_no_use(python):
    with pytest.raises(ConfigError, match=f"--cooperative: {python} is no Python that has"):
        cooperative_python(Path(python))


def test_peers_with_a_python_of_no_use_end_before_anything_is_measured(capsys):
    assert main(["peers", "small", "--cooperative", "/bin/false"]) == 4
    said = capsys.readouterr()
    assert "small:" not in said.out + said.err
    assert "overhead peers: --cooperative: /bin/false is no Python" in said.err


@pytest.mark.slow
def test_environment_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    requirements = ["--no-index", str(wheel(tmp_path, "alone", {"alone.py": "HELD = True\n"}))]
    python = environment("trial", requirements)
    assert python.is_relative_to(tmp_path / "cache")
    found = HERE.run([str(python), "-c", "import alone; print(alone.HELD)"])
    assert found.said == "True\n"
    (tmp_path / "alone-1.0-py3-none-any.whl").unlink()
    assert environment("trial", requirements) == python


@pytest.mark.slow
def test_environment_that_cannot_be_made_says_why_and_is_not_taken_for_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"(?s)cannot be made.*nothing-of-this-name"):
        environment("trial", ["--no-index", "nothing-of-this-name"])
    # What is left of it is not taken for one.
    with pytest.raises(ConfigError, match="cannot be made"):
        environment("trial", ["--no-index", "nothing-of-this-name"])


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


@pytest.mark.slow
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
        rows = peers_round(workload, Path(sys.executable), Options(Checkout(variables)))
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
