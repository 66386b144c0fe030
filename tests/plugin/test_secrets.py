"""No API key is in any file or output, in spite of suites, servers or options that echo it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import CANARY

LEAKY = """
import logging, os, sys, warnings
from dataclasses import dataclass

def key():
    return os.environ["TEST_KEY_0"]

@dataclass
class Holder:
    token: str

@prefetch
async def spoken(llm) -> str:
    print("environment:", dict(os.environ))
    print(key(), file=sys.stderr)
    logging.getLogger("suite").warning("key %s", key())
    return (await llm.chat([{"role": "user", "content": "say " + key()}])).text

def test_passes(spoken):
    warnings.warn(f"the key {key()} is old")
    print("environment:", dict(os.environ))
    logging.getLogger("suite").warning("key %s", key())

def test_fails(spoken):
    secret, holder, everything = key(), Holder(key()), dict(os.environ)
    print(secret)
    assert secret == "nothing", f"the key is {secret}"

def test_raises(spoken):
    held = spoken
    raise LookupError(f"no such key: {key()}")

def test_skips(spoken):
    pytest.skip(f"key {key()} is not good")

@pytest.mark.xfail(reason="known")
def test_expected(spoken):
    pytest.fail(key())

@prefetch
async def raising(llm) -> str:
    secret = key()
    await llm.chat([{"role": "user", "content": "say something"}])
    raise LookupError(f"no such key: {secret}")

def test_episode_raises(raising): pass

@prefetch
async def skipping(llm) -> str:
    pytest.skip(f"key {key()} is not good")

def test_episode_skips(skipping): pass

@prefetch
async def refused(llm) -> dict[str, str]:
    reply = await llm.chat([{"role": "user", "content": "status 400 " + key()}])
    return {"text": reply.text}

def test_refused(refused): pass

@prefetch
async def overloaded(llm) -> Holder:
    reply = await llm.chat([{"role": "user", "content": "status 500 " + key()}])
    return Holder(reply.text)

def test_overloaded(overloaded): pass

@pytest.fixture(scope="session")
def broken():
    raise RuntimeError(f"cannot log in with {key()}")

@prefetch
async def on_broken(llm, broken) -> str: ...

def test_on_broken(on_broken): pass

@pytest.fixture
def torn():
    yield
    raise RuntimeError(f"cannot log out with {key()}")

def test_teardown(spoken, torn): pass

def test_plain():
    print(key())
    assert key() == "nothing"

@pytest.mark.xfail(reason=f"waits for {os.environ['TEST_KEY_0']}")
def test_expected_with_a_reason(spoken):
    assert False

def test_has_a_property(spoken, record_property):
    record_property("key", os.environ["TEST_KEY_0"])

def test_graded(spoken, grade):
    grade("solved", **{"length": len(key())})
"""


def leaks(project) -> list[str]:
    """Files below the project that contain a key, or have it in their name."""
    found = []
    for path in project.pytester.path.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += repr(pq.read_table(path).to_pydict()).encode()
            content += repr(pq.read_schema(path).metadata).encode()
        if CANARY.encode() in content or CANARY in str(path):
            found.append(str(path.relative_to(project.pytester.path)))
    return found


@pytest.mark.cpu_s(2)
def test_no_key_leaves_the_environment(project, workers):
    project.write_pool(keys=3)
    project.suite(LEAKY)
    result = project.run(
        workers,
        "-rA",
        "--showlocals",
        "--junitxml=junit.xml",
        "-o",
        "junit_logging=all",
        "--durations=0",
        "-vv",
        "--ultrapar-max-attempts=1",
        "-Wdefault",  # a run in this process would inherit `-W error`
        f"--deselect={CANARY}-0",
    )
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 1
    assert "--deselect=***" in read_manifest(project.directory).arguments
    # The suite did its work.
    outcomes = {name.split("[")[0]: outcome for name, outcome in project.outcomes().items()}
    assert outcomes == {
        "test_passes": "solved",
        "test_fails": "unsolved",
        "test_raises": "error",
        "test_skips": "skipped",
        "test_expected": "unsolved",
        "test_episode_raises": "error",
        "test_episode_skips": "skipped",
        "test_expected_with_a_reason": "unsolved",
        "test_has_a_property": "solved",
        "test_refused": "error",
        "test_overloaded": "infra",
        "test_on_broken": "error",
        "test_teardown": "solved",
        "test_graded": "solved",
    }
    assert any(CANARY in prompt for prompt in project.server.prompts)
    # A report without its secret is still complete.
    assert "FAILED test_suite.py::test_fails[m-r0] - AssertionError: the key is ***" in output
    assert "ERROR test_suite.py::test_raises[m-r0] - LookupError: no such key: ***" in output
    assert leaks(project) == []
    assert CANARY not in output, [line for line in output.splitlines() if CANARY in line][:5]


@pytest.mark.parametrize(
    "option", ["-n0", "--collect-only", pytest.param("-n2", marks=pytest.mark.slow)]
)
@pytest.mark.cpu_s(2)
def test_errors_of_collection_contain_no_key(project, option):
    project.suite(
        """
import os
raise RuntimeError("cannot log in with " + os.environ["TEST_KEY_0"])
"""
    )
    result = project.run(option, "--showlocals", "--junitxml=junit.xml")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret in {1, 2}
    assert "RuntimeError: cannot log in with ***" in output
    assert CANARY not in output
    assert leaks(project) == []
