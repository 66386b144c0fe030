"""Settings and fixtures of all tests."""

from __future__ import annotations

import compileall
import gc
import os
import re
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

# Tests start some two hundred Python processes. If the environment forbids compiled files, as
# images of containers do, each of them would compile this package again, which takes 0.6 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Save 0.15 s in each process on things that no test reads. aiohttp makes two TLS contexts when it
# is imported, which read all authorities of the machine; cpuinfo runs four other programs.
_STAND_INS = Path(__file__).parent / "stand_ins"
os.environ["SSL_CERT_FILE"] = str(_STAND_INS / "authority.pem")
_known = os.environ.get("PYTHONPATH", "")
if str(_STAND_INS) not in _known:  # xdist's workers have it from their controller
    os.environ["PYTHONPATH"] = f"{_STAND_INS}{os.pathsep}{_known}" if _known else str(_STAND_INS)

# A tenth of the CPU went into garbage collection among modules and items, which are not garbage.
gc.set_threshold(20_000, 10, 10)

_ORDINARY = "not slow and not browser and not real"
"""The selection that `addopts` makes."""

_UNUSUAL = re.compile(r"^pytestmark = pytest\.mark\.(?:slow|browser)$", re.MULTILINE)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run folders of tests on every core, as if `-n` and `--dist worksteal` were given.

    Quick tests get three workers for two cores, since they wait for a third of their time. Slow
    tests wait for two thirds, and get four. Tests by name, a debugger and `-s` need one process,
    and the user's own options override this. `addopts` would also apply to the suites in
    `bench_suites`, whose workers and limits the user chooses.
    """
    option = config.option
    here = Path(__file__).parent
    paths = [config.invocation_params.dir / arg for arg in config.args]
    folders = all(path.is_dir() and path.is_relative_to(here) for path in paths)
    told = getattr(option, "numprocesses", 0) is not None or option.tx or option.dist != "no"
    watched = option.usepdb or option.trace or option.capture == "no" or option.collectonly
    measured = config.getoption("benchmark_only", default=False)
    if folders and not (told or watched or measured or hasattr(config, "workerinput")):
        option.dist = "worksteal"
        option.numprocesses = (4 if option.markexpr == "slow" else 3) * (os.cpu_count() or 1) // 2


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test; `--benchmark-only` measures each for a second.

    `tests.examples` sets the number of examples that hypothesis draws.
    """
    if not config.getoption("benchmark_only", True):
        config.option.benchmark_disable = True
    if not hasattr(config, "workerinput"):
        # Otherwise, in a fresh clone, the first test that loads a module pays for its compilation.
        compileall.compile_dir(Path(__file__).parents[1] / "pytest_ultrapar", quiet=2)
    # pytest reads this file whenever it is started in the repository's root, for `pytest-benchmark
    # compare` too, so the root needs only the package itself.
    with suppress(ModuleNotFoundError):
        from tests.examples import QUICK, SLOW, settings

        if not config.getoption("hypothesis_profile", None):
            settings.load_profile(QUICK if config.option.markexpr == _ORDINARY else SLOW)
    if config.option.markexpr == _ORDINARY and not config.getoption("benchmark_only", False):
        config.pluginmanager.register(CpuBound())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module in which all tests would be deselected."""
    if config.option.markexpr != _ORDINARY or collection_path.suffix != ".py":
        return None
    return bool(_UNUSUAL.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.fixture(scope="module")
def kv() -> Iterator[Any]:
    """A server of the cluster that the tests of a module share."""
    from tests.key_value_server import KeyValueServer

    with KeyValueServer.start() as server:
        yield server


@pytest.fixture
def outside_xdist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide from each started run that this process may be a worker of xdist."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark hypothesis' tests as slow if they draw more examples than usual."""
    if config.option.markexpr != _ORDINARY:
        for item in items:
            if _is_drawn(item):
                item.add_marker("slow")
        # They wait most of their time. At the end of the session they would leave a core idle.
        items.sort(key=lambda item: not item.path.name.startswith("test_cluster"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Prepare the things with which tests start children (a second of CPU), for a run alone.

    These objects live to the end, so the garbage collector skips them.
    """
    if session.config.option.collectonly:
        return
    if "tests.warm" in sys.modules:
        sys.modules["tests.warm"].import_all()
    gc.freeze()


def _is_drawn(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def _draw_once() -> None:
    """Make hypothesis read the constants of all modules and build its tables of characters."""
    from hypothesis import given
    from hypothesis import strategies as st

    @given(st.text(), st.integers(), st.floats())
    def draw(text: str, number: int, ratio: float) -> None:
        """Draw one of each."""

    draw()


class CpuBound:
    """List the quick tests that use more than a second of CPU, including ended children.

    The unit is a second of the machine on which this was written. A loop, timed at the start of the
    session, gives the factor for this machine. `cpu_s(n)` allows a test n seconds: use it for the
    one quick test of an expensive way to run, such as two workers. Tests of hypothesis get three
    seconds, because their examples differ from run to run. No test fails because of its CPU: on a
    busy machine any test is expensive.
    """

    _LOOP_S = 0.035
    """The time of the loop on the machine on which this was written, otherwise idle."""

    def __init__(self) -> None:
        self._loop_s = self._LOOP_S
        self._began_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Time the loop, and prepare hypothesis, so that no test pays for its first use."""
        # A controller has no items: its workers run them.
        if session.items and not session.config.option.collectonly:
            self._loop_s = self._time_loop()
            if any(map(_is_drawn, session.items)):
                _draw_once()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        self._began_s = self._used_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None]:
        """Subtract the CPU of fixtures that several tests share."""
        began_s = self._used_s()
        result = yield
        if fixturedef.scope != "function":
            self._began_s += self._used_s() - began_s
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None]:
        used_s = self._used_s() - self._began_s
        result = yield
        # The shared fixtures of a module end with its last test.
        if nextitem and nextitem.parent is item.parent:
            used_s = self._used_s() - self._began_s
        mark = item.get_closest_marker("cpu_s")
        allowed_s = mark.args[0] if mark else 3.0 if _is_drawn(item) else 1.0
        used_s *= self._LOOP_S / self._loop_s
        if used_s > allowed_s:
            # Reports carry it from xdist's workers to the controller.
            item.user_properties.append(("cpu_s", used_s))
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests above their bound, the most expensive first."""
        above = [
            (used_s, report.nodeid)
            for report in terminalreporter.getreports("")
            for name, used_s in report.user_properties
            if name == "cpu_s" and report.when == "teardown"
        ]
        if above:
            terminalreporter.section("quick tests that use too much CPU; make them cheaper or slow")
            for used_s, nodeid in sorted(above, reverse=True):
                terminalreporter.write_line(f"{used_s:5.1f} s  {nodeid}")

    @staticmethod
    def _used_s() -> float:
        return sum(os.times()[:4])

    @staticmethod
    def _time_loop() -> float:
        def once() -> float:
            began_s = time.process_time()
            for number in range(1_000_000):
                number & 3
            return time.process_time() - began_s

        return min(once() for _ in range(3))
