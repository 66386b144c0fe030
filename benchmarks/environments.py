"""Check compatibility with common environments: `python -m benchmarks.environments`.

Each row is a fresh environment that uv makes from this checkout and some pins. A small suite runs
in it on a simulated pool, in one process and on two workers. It contains async tests, prefetched
tests and, if pytest-asyncio is installed, a test of pytest-asyncio. The table is in
docs/reference/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHOWN = ("pytest", "pytest-xdist", "pytest-asyncio", "httpx", "aiohttp", "pyarrow", "numpy")
LOWEST = "lowest of all"
PINS = (
    *("pytest==8.3.*", "pytest==8.4.*", "pytest==9.0.*", "pytest-xdist==3.6.*"),
    *("pytest-xdist==3.7.*", "pytest-benchmark==4.*", "aiohttp==3.10.*", "aiohttp==3.11.*"),
    *("aiohttp==3.12.*", "pyarrow==15.*", "numpy==1.26.* pyarrow<26", "pytest-asyncio==0.24.*"),
    *("pytest-asyncio==0.25.*", "pytest-asyncio==0.26.*", "pytest-asyncio==1.0.*"),
    *("pytest-asyncio", "deepeval==2.*", "deepeval", "langsmith==0.2.*", "langsmith"),
    *("inspect_ai==0.3.50", "inspect_ai", "mlflow==2.17.*", "mlflow", "streamlit==1.40.*"),
    "streamlit",
)
ROWS = {"newest of all": (), LOWEST: (), **{pins: tuple(pins.split()) for pins in PINS}}
"""Environments by name, with their pins."""
POOL = """
schema = 1
[[provider]]
name = "lab"
api = "simulated"
keys = [{ name = "key0" }]
per_key = { workers = 4 }
latency = { kind = "fixed", median_s = 0.0 }
[[provider.model]]
name = "m"
"""
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, word) -> str:
    return (await llm.chat([{"role": "user", "content": word}])).text

@pytest.mark.parametrize("word", ["one", "two"])
def test_prefetched(answer):
    assert answer

@pytest.mark.parametrize("word", ["one", "two"])
async def test_async(llm, word):
    assert (await llm.chat(word)).text
"""
BESIDE = """
import asyncio
import pytest
pytest.importorskip("pytest_asyncio")

@pytest.mark.asyncio
async def test_of_pytest_asyncio():
    await asyncio.sleep(0)
"""


class Row(NamedTuple):
    """The result of an environment.

    Attributes:
        name: Its pins as text.
        found: Installed versions by name; None if the pins do not resolve.
        said: The last line of each run of the suite, or the error of the resolver.
    """

    name: str
    found: dict[str, str] | None
    said: tuple[str, ...]


def row(name: str, pins: tuple[str, ...], *, uv: str, python: str) -> Row:
    """Make an environment, and run the suite in it."""
    with TemporaryDirectory() as made:
        place = Path(made)
        own = place / "env" / "bin" / "python"
        _run(uv, "venv", "--quiet", "--python", python, str(place / "env"))
        how = ["--resolution", "lowest-direct"] if name == LOWEST else []
        to_own = ["--quiet", "--python", str(own)]
        installed = _run(uv, "pip", "install", *to_own, *how, "--editable", str(ROOT), *pins)
        if installed.returncode:
            return Row(name, None, (installed.stderr.strip().splitlines()[-1],))
        listed = json.loads(_run(uv, "pip", "list", *to_own, "--format", "json").stdout)
        for file, text in {"pool.toml": POOL, "test_s.py": SUITE, "test_b.py": BESIDE}.items():
            (place / file).write_text(text, "utf-8")
        run = [str(own), "-m", "pytest", "--ultrapar-pool", "pool.toml"]
        ends = [_run(*run, "-n", workers, cwd=place) for workers in ("0", "2")]
        return Row(
            name,
            {one["name"]: one["version"] for one in listed},
            tuple(
                f"{'passed' if end.returncode == 0 else 'FAILED'}: "
                f"{(end.stdout.strip().splitlines() or ['nothing'])[-1].strip('= ')}"
                for end in ends
            ),
        )


def _run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def line(made: Row) -> str:
    """A row of the table."""
    if made.found is None:
        return f"| {made.name} {'| - ' * len(SHOWN)}| does not resolve | - |"
    pinned = made.name.partition("=")[0].replace("_", "-")
    other = f" {made.found[pinned]}" if pinned in made.found and "=" not in made.name else ""
    versions = [made.found.get(name, "-") for name in SHOWN]
    ends = [one.partition(":")[0] for one in made.said]
    return f"| {made.name}{other} | {' | '.join([*versions, *ends])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.environments", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure (default: all)")
    parser.add_argument("--uv", default="uv", help="path of uv (default: uv)")
    parser.add_argument(
        "--python", default=sys.executable, help="path of the interpreter (default: this one)"
    )
    chosen = parser.parse_args()
    version = _run(chosen.python, "--version").stdout.strip()
    print(f"{version}, {datetime.now(tz=UTC):%Y-%m-%d}\n")
    print(f"| environment | {' | '.join(SHOWN)} | `-n 0` | `-n 2` |")
    print("|" + " --- |" * (len(SHOWN) + 3))
    for name in chosen.rows or ROWS:
        made = row(name, ROWS[name], uv=chosen.uv, python=chosen.python)
        print(line(made), flush=True)
        for end in made.said:
            if not end.startswith("passed"):
                print(end, file=sys.stderr)


if __name__ == "__main__":
    main()
