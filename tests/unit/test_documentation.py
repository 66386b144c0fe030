"""README and docs match the code."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench_suites.original_scripts import plugin as documented
from benchmarks import environments
from pytest_ultrapar import CaseInfo, Reply, cli, hooks
from pytest_ultrapar.compare.bench.arguments import check_passed_on, parse_modes
from pytest_ultrapar.compare.rules import parse_rule
from pytest_ultrapar.coordinator.policies import POLICIES
from pytest_ultrapar.pool import file, model
from pytest_ultrapar.pool.providers import DEFAULT_TIMEOUT_S
from pytest_ultrapar.session import selection
from pytest_ultrapar.session.required_internals import TESTED
from tests import column_tables
from tests.light import LIGHT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
RUN = (
    "python3 -m venv .venv && .venv/bin/pip install -e . && "
    ".venv/bin/pytest bench_suites/phase53 -n 15 --ultrapar-pool pool.toml"
)
TEST = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """The text below a heading of level two."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


POOL = page("reference/pool.md")
RESULTS = page("reference/results.md")
HOOKS = page("reference/hooks.md")


def rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rulers = [at for at, row in enumerate(cells) if set(row[0]) == {"-"}]
    heads = {at for ruler in rulers for at in (ruler, ruler - 1)}
    return [row for at, row in enumerate(cells) if at not in heads]


def named(cell: str) -> list[str]:
    """The texts in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_readme_shows_the_two_commands_and_ci_runs_the_second():
    assert f"\n    {RUN}\n" in README
    whole = RUN.rpartition(" && ")[2]
    assert f"\n    {whole} --ultrapar-repeats 1 --task-type basic_task\n" in README
    assert f"\n    {TEST}\n" in README
    assert f"\n{TEST}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


REFERENCE = {
    "Top level": file.PoolFile,
    "`[pool]`": file.WholePoolTable,
    "`[[provider]]`": file.ProviderTable,
    "An entry of `keys`": file.KeyTable,
    "`[[provider.model]]`": file.ModelTable,
    "`[role.<name>]`": file.RoleTable,
    "An entry of `instances`": file.InstanceTable,
    "`latency`": file.LatencyTable,
}


@pytest.mark.parametrize("title", REFERENCE)
def test_every_field_of_a_pool_is_in_the_reference(title):
    fields = [name for row in rows(section(POOL, title)) for name in named(row[0])]
    assert sorted(fields) == sorted(REFERENCE[title].__struct_fields__)


def test_limits_of_a_pool_are_in_the_reference():
    fields = [named(row[0])[0] for row in rows(section(POOL, "Limits"))]
    assert fields == list(file.LimitTable.__struct_fields__)


def test_defaults_of_a_pool_match_the_reference():
    table = {name: row[1] for row in rows(POOL) for name in named(row[0])}
    standard = model.Simulation()
    assert table["timeout_s"] == f"{DEFAULT_TIMEOUT_S:g}"
    assert table["persona"] == f'`"{standard.persona}"`'
    assert table["skill"] == str(standard.skill)
    assert f"{standard.latency.median_s:g} s {standard.latency.kind}" in POOL


def test_columns_in_the_reference_come_from_the_records():
    assert column_tables.replaced(RESULTS) == RESULTS, "run python -m tests.column_tables"


def test_every_hook_is_in_the_reference_with_its_arguments():
    shown = [named(row[0])[0] for row in rows(HOOKS)]
    specs = [hook for name, hook in vars(hooks).items() if name.startswith("pytest_")]
    assert shown == [
        f"{hook.__name__}({', '.join(hook.__code__.co_varnames[: hook.__code__.co_argcount])})"
        for hook in specs
    ]


def test_arguments_of_the_mark_and_fields_of_the_episode_are_in_the_reference():
    suites = page("reference/suites.md")
    (mark,) = re.findall(r"\*\*`@pytest\.mark\.ultrapar\(([^`]+)\)`", suites)
    assert sorted(re.findall(r"(\w+)=", mark)) == sorted(selection._ARGUMENTS)
    (fields,) = re.findall(r"`case` \(([^)]+)\)", suites)
    assert named(fields) == [one.name for one in dataclasses.fields(CaseInfo)]
    reply = suites.split("and returns a `Reply`:")[1].split("Parameters such as")[0]
    unknown = {one for one in named(reply) if one.isidentifier() and not hasattr(Reply, one)}
    assert unknown == {"n"}, "n is a parameter"


def test_ultrapar_commands_of_the_documentation_are_valid():
    texts = [one.read_text(encoding="utf-8") for one in PAGES]
    shown = re.compile(r"^    ultrapar ([a-z].+?)(?: &)?$", re.MULTILINE)
    commands = [one for text in texts for one in shown.findall(text)]
    names: list[str] = []
    rules: list[str] = []
    for command in commands:
        if "[" in command.replace("[model=", ""):  # a synopsis
            continue
        arguments, rest = cli._parser().parse_known_args(shlex.split(command))
        names.append(arguments.subcommand.NAME)
        if names[-1] == "bench":
            parse_modes(arguments.modes)
            check_passed_on(rest, has_pool=arguments.pool is not None)
        else:
            assert rest == []
            rules += getattr(arguments, "rule", None) or ()
    assert {*names} == {import_module(one).NAME for one in cli.SUBCOMMANDS}
    assert len([parse_rule(rule) for rule in rules]) == 9


@pytest.mark.slow
def test_first_suite_of_the_readme_and_policy_of_the_reference_work(pytester, outside_xdist):
    pool, real = blocks(section(README, "A first suite"), "toml")
    (suite,) = blocks(section(README, "A first suite"), "python")
    figures, policy = blocks(HOOKS, "python")
    pytester.path.joinpath("pool.toml").write_text(pool)
    pytester.path.joinpath("real.toml").write_text(real)
    pytester.path.joinpath("test_words.py").write_text(suite)
    pytester.path.joinpath("conftest.py").write_text(figures + policy)
    # With all installed plugins, as users run it. Other tests leave them out (`LIGHT`).
    result = pytester.runpytest_subprocess("-n", "2", "--ultrapar-pool", "pool.toml", timeout=300)
    assert result.ret == 0, result.stdout.str()
    assert result.parseoutcomes()["solved"] == 20
    result.stdout.fnmatch_lines(["*20 cases; gw0*demo/*", "SIMULATED:*"])
    refused = pytester.runpytest_subprocess(*LIGHT, "--ultrapar-pool", "real.toml", timeout=300)
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(["*LAB_KEY_0, which is unset or empty*LAB_KEY_1"])


POLICIES_PAGE = page("reference/policies.md")


def test_every_policy_is_on_its_page():
    names = [named(row[0])[0] for row in rows(POLICIES_PAGE.split("\n## Mode")[0])]
    assert names == [*POLICIES, *documented.POLICIES]


def test_versions_in_the_reference_match_the_package():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {one.name: str(one.specifier) for one in map(Requirement, known["dependencies"])}
    text = page("reference/compatibility.md")
    for names, lowest, newest in rows(text.partition("\n## ")[0]):
        versions = lowest.partition(":")[0].split(", ")
        for name, version in zip(names.split(", "), versions, strict=True):
            assert found[name] == f">={version}"
            assert newest == TESTED[name][-1] if name in TESTED else newest == "the current release"
    assert f"| environment | {' | '.join(environments.SHOWN)} | `-n 0` | `-n 2` |" in text


LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_each_page_begins_with_its_purpose_and_ends_with_next_pages(path):
    text = path.read_text(encoding="utf-8")
    title, first = text.split("\n\n", 2)[:2]
    assert re.fullmatch("# .+", title)
    assert re.match("[A-Z`0-9]", first), "a sentence says what the page is for"
    if path.name != "index.md":
        last = text.rpartition("\n## ")[2]
        assert last.startswith("Where next\n\n")
        assert 1 <= len(LINK.findall(last)) <= 3


def test_first_page_lists_every_page_once():
    names = [DOCS / link for link in LINK.findall(page("index.md").split("**", 1)[1])]
    assert sorted(names) == sorted({*DOCS.rglob("*.md")} - {DOCS / "index.md"})


FILE = re.compile(r"`([a-z_]+/[a-z_/]+\.py)`")


@pytest.mark.parametrize("name", ["architecture.md", "explanation/how-it-works.md"])
def test_files_that_a_map_names_exist(name):
    named_files = FILE.findall(page(name))
    assert len(named_files) > 10
    places = [ROOT, ROOT / "pytest_ultrapar", ROOT / "bench_suites"]
    assert [one for one in named_files if not any((it / one).is_file() for it in places)] == []


@pytest.mark.slow
def test_how_it_works_shows_the_bound_of_its_run(pytester, outside_xdist):
    text = page("explanation/how-it-works.md")
    pool, _ = blocks(section(README, "A first suite"), "toml")
    words = blocks(section(README, "A first suite"), "python")[0].partition("@pytest")[0]
    two_keys = pool.replace("workers = 10", "workers = 5").replace(
        '{ name = "key0" }', '{ name = "key0" }, { name = "key1" }'
    )
    pytester.path.joinpath("pool.toml").write_text(two_keys)
    pytester.path.joinpath("test_words.py").write_text(words + blocks(text, "python")[0])
    (command,) = re.findall(r"^    pytest (.+)$", text, re.MULTILINE)
    result = pytester.runpytest_subprocess(*LIGHT, *shlex.split(command), timeout=300)
    (line,) = re.findall(r"^    (lower bound .+)$", text, re.MULTILINE)
    shape = re.sub(r"[0-9]+\\\.[0-9]+", r"[0-9.]+", re.escape(line))  # seconds differ by machine
    assert re.search(f"^{shape}$", result.stdout.str(), re.MULTILINE)
