"""The end of a run: the work after the last report."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.run_summary import read_summary
from tests.plugin.conftest import cases

pytestmark = pytest.mark.slow

COMPACT = "pytest_ultrapar.analysis.compact"
TABLES = ("results", "attempts", "transcripts")


def test_tables_of_a_run_equal_the_tables_rebuilt_from_its_journal(project):
    project.write_pool(keys=2, models=("m", "n"))
    project.suite(
        "@pytest.mark.parametrize('prompt', ['a', 'fail:500', 'b', 'c'])\n"
        "def test_a(answer, grade, prompt):\n"
        "    grade('partial', **{f'of_{prompt[0]}': 0.5})\n"
        "    assert prompt != 'b'\n"
        "@pytest.mark.skip\n"
        "@pytest.mark.parametrize('prompt', ['d'])\n"
        "def test_b(answer): pass\n"
    )
    project.run("-n0", "--ultrapar-repeats", "3")
    directory = project.directory.resolve()
    tables = [pq.read_table(directory / f"{name}.parquet") for name in TABLES]
    summary = msgspec.structs.replace(read_summary(directory), tables_s=None)
    assert [len(table) >= 24 for table in tables] == [True] * 3
    subprocess.run([sys.executable, "-m", COMPACT, directory], check=True, capture_output=True)
    assert [pq.read_table(directory / f"{name}.parquet") for name in TABLES] == tables
    assert msgspec.structs.replace(read_summary(directory), tables_s=None) == summary


def test_pytests_last_garbage_collection_skips_the_items(project):
    project.pytester.makeconftest(
        "import gc\n"
        "from _pytest import unraisableexception\n"
        "look = unraisableexception.gc_collect_harder\n"
        "def seen(iterations):\n"
        "    print('frozen' if gc.get_freeze_count() > 10_000 else 'thawed')\n"
        "    look(iterations)\n"
        "unraisableexception.gc_collect_harder = seen\n"
    )
    project.suite(cases(["a"]))
    result = project.run_apart("-s")
    assert result.ret == 0
    assert result.outlines[-1] == "frozen"


@pytest.mark.parametrize(
    "test",
    [
        "async def test_it(llm): await llm.chat('say it')",
        "async def test_it(llm): await llm.role('user').chat('say it')",
        "async def test_it(llm): await llm.run(lambda: llm.sync.chat('say it'))",
        "from pytest_ultrapar import prefetch\n"
        "@prefetch\n"
        "async def answer(llm) -> str: return (await llm.chat('say it')).text\n"
        "def test_it(answer): pass",
    ],
    ids=["chat", "role", "sync", "prefetch"],
)
def test_a_finished_episode_leaves_no_garbage_cycle(project, test):
    project.pytester.makeconftest(
        "import gc, pytest\n"
        "from pytest_ultrapar.engine.llm import Llm\n"
        "from pytest_ultrapar.engine.sender import Sender\n"
        "gc.set_debug(gc.DEBUG_SAVEALL)\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_sessionfinish():\n"
        "    gc.collect()\n"
        "    gc.set_debug(0)\n"
        "    print('cycles of', [one for one in gc.garbage if isinstance(one, Llm | Sender)])\n"
    )
    project.suite(test)
    project.write_pool(models=["m", "u"])
    with project.pytester.path.joinpath("pool.toml").open("a") as pool:
        pool.write('[role.user]\nmodel = "u"\n')
    result = project.run_apart("-s", "--ultrapar-repeats=3")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*cycles of []"])


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_pytests_last_garbage_collection_skips_the_reports_and_finds_unclosed_objects(
    project, workers
):
    project.pytester.makeconftest(
        "import gc, pytest\n"
        "from _pytest import unraisableexception\n"
        "look = unraisableexception.gc_collect_harder\n"
        "def seen(iterations):\n"
        "    kept = [one for one in gc.get_objects() if isinstance(one, pytest.TestReport)]\n"
        "    with open('seen.txt', 'a') as file:\n"
        "        file.write(f'{len(kept)}\\n')\n"
        "    look(iterations)\n"
        "unraisableexception.gc_collect_harder = seen\n"
        "class Unclosed:\n"
        "    def __init__(self):\n"
        "        self.itself = self\n"
        "    def __del__(self):\n"
        "        open('found.txt', 'w').close()\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def unclosed():\n"
        "    one = Unclosed()\n"
        "    yield\n"
    )
    project.suite(cases(["a", "b"]))
    assert project.run_apart(*workers).ret == 0
    seen = (project.pytester.path / "seen.txt").read_text().split()
    assert set(seen) == {"0"}
    assert (project.pytester.path / "found.txt").exists()
