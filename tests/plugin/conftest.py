from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.benchmark_json import machine_info
from pytest_ultrapar.store.manifest import read_manifest
from tests.light import LIGHT
from tests.plugin.cluster_stage import hosts, lab  # noqa: F401 - fixtures
from tests.running import OPTIONS
from tests.scripted_server import ScriptedServer
from tests.warm import warm_run

CANARY = "sk-canary-4f9a1c77e2b05d"
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}])).text
"""


def cases(prompts: int | Sequence[str], body: str = "pass") -> str:
    """A test for a suite, with a case for each prompt; a number makes that many prompts."""
    if isinstance(prompts, int):
        prompts = [f"say {n}" for n in range(prompts)]
    arguments = "answer, prompt, grade" if "grade" in body else "answer, prompt"
    return f"""
@pytest.mark.parametrize("prompt", {prompts!r})
def test_it({arguments}):
    {body}
"""


@pytest.fixture(scope="session")
def _server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def server(_server: ScriptedServer) -> ScriptedServer:
    _server.reset()
    return _server


class Project:
    """A user's project: a pool on the scripted server, a suite, and pytest runs on them."""

    def __init__(self, pytester: pytest.Pytester, server: ScriptedServer) -> None:
        self.pytester = pytester
        self.server = server
        self.locks = pytester.path.with_name(f"{pytester.path.name}-locks")
        self.write_pool()

    def write_pool(
        self,
        *,
        keys: int = 1,
        models: Sequence[str] = ("m",),
        provider: str = "",
        key: str = "",
        base_url: str | None = None,
        seats: int = 4,
        timeout_s: float = 5,
        model: str = "",
        api: str = "openai",
        instances: str = "",
    ) -> None:
        """Write the pool; `provider`, `key` and `model` are more fields of the tables.

        A model has one instance of its name, or all of the list `instances`.
        """
        url = base_url or self.server.base_url
        names = ", ".join(f'{{ name = "key{n}", env = "TEST_KEY_{n}" }}' for n in range(keys))
        listed = "".join(
            f'\n[[provider.model]]\nname = "{name}"\n'
            f"instances = {instances or json.dumps([name])}\n{model}\n"
            for name in models
        )
        self.pytester.path.joinpath("pool.toml").write_text(
            f'schema = 1\n[[provider]]\nname = "p"\napi = "{api}"\nbase_url = "{url}"\n'
            f"keys = [{names}]\nper_key = {{ workers = {seats} {key} }}\n"
            f"timeout_s = {timeout_s}\n"
            f"{provider}\n{listed}"
        )

    def suite(self, body: str, name: str = "test_suite.py") -> None:
        self.pytester.path.joinpath(name).write_text(SUITE + body)

    def run(self, *args: str, pool: bool = True) -> pytest.RunResult:
        """Run pytest in this process with `-n0` or `-n2`, otherwise in a process of its own.

        This saves 0.9 s of imports; workers import again. A test starts a process if it judges a
        run from outside, by signals or by its traces, or if its conftest changes a module of the
        plugin.
        """
        is_here = {"-n0", "-n2"} & {*args}
        return (self.run_here if is_here else self.run_apart)(*args, pool=pool)

    def run_apart(self, *args: str, pool: bool = True) -> pytest.RunResult:
        """Run pytest in a process of its own."""
        options = OPTIONS if pool else ()
        return self.pytester.runpytest_subprocess(*LIGHT, *options, *args, timeout=300)

    def run_here(self, *args: str, pool: bool = True) -> pytest.RunResult:
        """Run pytest in this process: ten times as fast if the run ends before any request."""
        options = OPTIONS if pool else ()
        machine_info()  # keep the changed environment, for children too
        with warm_run():
            return self.pytester.runpytest_inprocess(*LIGHT, *options, *args)

    def refusal(self, result: pytest.RunResult) -> str:
        """The message of a run that was refused before it sent anything."""
        said = refused(result)
        assert self.server.prompts == []
        return said

    def finish(self, n_cases: int) -> None:
        """Resume the last run, and check that it has this many cases, all of them solved."""
        assert self.run("-n0", "--ultrapar-resume=latest").ret == 0
        assert [row["outcome"] for row in self.rows()] == ["solved"] * n_cases

    @property
    def directory(self) -> Path:
        return self.pytester.path / ".ultrapar" / "latest"

    @property
    def report(self) -> pytest.LineMatcher:
        """The plugin's report of the last run in full, as sentences."""
        text = (self.directory / "report.md").read_text(encoding="utf-8")
        lines = [line.removeprefix("- ") for line in text.splitlines()]
        return pytest.LineMatcher([re.sub(r"\\(.)", r"\1", line) for line in lines])

    def rows(self, table: str = "results") -> list[dict[str, Any]]:
        return pq.read_table(self.directory / f"{table}.parquet").to_pylist()

    def reasons(self) -> dict[str, str]:
        """The reason for which each lane was removed; the empty string for a lane in use."""
        return {lane.lane: lane.reason for lane in read_manifest(self.directory).lanes}

    def kinds(self) -> Counter[tuple[str, str | None]]:
        """The number of cases with each outcome and kind."""
        return Counter((row["outcome"], row["kind"]) for row in self.rows())

    def outcomes(self) -> dict[str, str]:
        """The outcome of each test, by its name with parameters."""
        return {row["nodeid"].split("::")[-1]: row["outcome"] for row in self.rows()}


def said_by(result: pytest.RunResult, *codes: int) -> str:
    """The output of a run that ends with one of these exit codes and without a traceback."""
    said = result.stdout.str() + result.stderr.str()
    assert result.ret in codes, said
    assert "Traceback" not in said, said
    assert "INTERNALERROR" not in said, said
    assert CANARY not in said
    return said


def refused(result: pytest.RunResult) -> str:
    """The plugin's message, on standard error, about a run that was refused."""
    said_by(result, 4)
    return result.stderr.str()


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    outside_xdist: None,
) -> Project:
    for n in range(3):
        monkeypatch.setenv(f"TEST_KEY_{n}", f"{CANARY}-{n}")
    # Python would use the bytecode of a suite of the same length that was written in the same
    # second.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    project = Project(pytester, server)
    monkeypatch.setenv("ULTRAPAR_LOCK_DIR", str(project.locks))
    monkeypatch.setenv("ULTRAPAR_STATE_DIR", f"{project.locks}-state")
    return project


@pytest.fixture(params=["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def workers(request: pytest.FixtureRequest) -> str:
    """Run the test without and with xdist, because its subject has two parts with xdist."""
    return request.param


def section(output: str, title: str) -> str:
    """The part of pytest's failure report below the heading with `title`."""
    _, _, rest = output.partition(f" {title} ___")
    assert rest, f"no section {title!r} in:\n{output}"
    lines = rest.split("\n", 1)[1].splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith(("____", "====")))
    return "\n".join(lines[:end])
