"""An API from a third-party package: built, installed next to the plugin, and run."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from pytest_ultrapar.apis import registry
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from tests.raw_server import Peer, RawServer, Request, json_response
from tests.unit.pool_texts import real

ROOT = Path(__file__).parents[2]
CANARY = "sk-canary-of-acme-0123456789"
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}], max_tokens=7)).text

@pytest.mark.parametrize("prompt", ["a", "b", "c"])
def test_answer(answer, prompt):
    assert answer == prompt.upper()

@prefetch
async def wrong(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "x"}], seed=1)).text

def test_refused(wrong): pass
"""
POOL = """
schema = 1
[[provider]]
name = "p"
api = "acme"
base_url = "{url}"
keys = [{{ name = "key0", env = "ACME_KEY" }}]
[[provider.model]]
name = "m"
"""


def done(*words: object, **more) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


@pytest.fixture(scope="module")
def fresh_python(tmp_path_factory):
    """An environment with wheels of the plugin and of the example, and this one's dependencies."""
    directory = tmp_path_factory.mktemp("fresh")
    wheels = directory / "wheels"
    for source in (ROOT, ROOT / "tests" / "example_api"):
        built = done(
            *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels), cwd=source
        )
        assert built.returncode == 0, built.stderr
    venv.create(directory / "env")
    (site,) = (directory / "env" / "lib").glob("python*/site-packages")
    # pip does the same with a pure-Python wheel, except for its commands.
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)
    # After its own packages, so that its own take precedence.
    site.joinpath("dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return directory / "env" / "bin" / "python"


@pytest.mark.slow
def test_pool_of_an_installed_api_runs(fresh_python, tmp_path):
    seen: list[tuple[str, str, object]] = []

    async def answer(peer: Peer, request: Request) -> None:
        body = request.json()
        seen.append((request.path, request.headers["x-acme-key"], body))
        said = body["talk"][-1].upper()
        await peer.send(json_response({"said": said, "cost": [3, 4]}))

    with RawServer(answer) as server:
        tmp_path.joinpath("pool.toml").write_text(POOL.format(url=server.url))
        tmp_path.joinpath("test_suite.py").write_text(SUITE)
        environ = {**os.environ, "ACME_KEY": CANARY, "PYTEST_ADDOPTS": "", "PYTHONPATH": ""}
        result = done(
            *(fresh_python, "-m", "pytest", "--ultrapar-pool=pool.toml", "-n2"),
            *("-p", "no:cacheprovider"),
            cwd=tmp_path,
            env=environ,
        )
    said = result.stdout + result.stderr
    assert "1 error, 3 solved" in said, said
    assert "'seed', which has no counterpart in api = \"acme\"" in said
    assert sorted(body["talk"] for _, _, body in seen) == [["a"], ["b"], ["c"]]
    assert {(path, key) for path, key, _ in seen} == {("/ask/m", CANARY)}
    assert CANARY not in said


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that adds a package with one entry point to the installed ones."""

    def forget():
        registry._installed.cache_clear()
        registry._brought.cache_clear()

    def install(package: str, name: str, where: str) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        named = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        info.joinpath("METADATA").write_text(named)
        info.joinpath("entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {where}\n")
        forget()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    forget()


def refusal(tmp_path: Path, api: str) -> str:
    path = tmp_path / "pool.toml"
    path.write_text(real(api=api), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_pool(path, environ={}, overrides=Overrides())
    return str(error.value).partition("provider[0].api ")[2]


def test_name_added_by_two_packages_is_refused_and_both_are_named(install, tmp_path):
    install("acme", "acme", "json:API")
    install("other", "acme", "json:API")
    assert refusal(tmp_path, "acme") == (
        'is "acme", which several packages define (acme 1.0, other 1.0): keep only one'
    )


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("no_such_module:API", "the import failed: ModuleNotFoundError: No module named"),
        ("json:API", "the import failed: AttributeError: module 'json' has no attribute 'API'"),
        ("acme_broken:API", "the import failed: ZeroDivisionError: division by zero"),
        ("json:dumps", "the object lacks allowance, base_paths, base_url_hint, "),
    ],
)
def test_unusable_api_is_refused_and_its_package_is_named(install, tmp_path, where, why):
    tmp_path.joinpath("acme_broken.py").write_text("1 / 0\n")
    install("acme", "acme", where)
    said = refusal(tmp_path, "acme")
    assert said.startswith(f'is "acme", which acme 1.0 defines as {where}: {why}')


def test_error_lists_installed_apis_among_the_known_ones(install, tmp_path):
    install("acme", "acme", "json:API")
    assert refusal(tmp_path, "acmee") == (
        'must be "openai" or "azure-openai" or "openai-responses" or "anthropic" or "gemini" or '
        '"simulated" or "acme" (got "acmee"); did you mean "acme"?'
    )


def test_package_cannot_replace_a_built_in_api(install):
    install("acme", "openai", "json:dumps")
    assert registry.api_named("openai").endpoint_noun == "model"
    assert registry.api_names().count("openai") == 1
