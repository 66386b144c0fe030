"""One pytest run through a proxy, and the proxy's log of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from pytest_ultrapar.simulator.address import default_token
from tests.light import PYTEST
from tests.plugin.conftest import SUITE, cases
from tests.proxies.access_log import Seen, span_s
from tests.proxies.fronts import Front
from tests.simulated_pool import pool_text, serving

ROOT = Path(__file__).parents[2]
_POOL = """
schema = 1
[[provider]]
name = "lab"
api = "openai"
base_url = "http://127.0.0.1:{port}/up/v1"
keys = [{{ name = "key0", env = "PROXIES_KEY" }}]
per_key = {{ {limit} }}
timeout_s = 60
[[provider.model]]
name = "m"
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
        requests: The requests that the proxy saw, in order of arrival.
        outcomes: Cases by outcome and kind.
        time_s: Seconds from the first request to the last answer, in the proxy's log.
        output: The output of pytest.
    """

    requests: tuple[Seen, ...]
    outcomes: Counter[tuple[str, str | None]]
    time_s: float
    output: str

    @property
    def n_infra(self) -> int:
        return sum(n for (outcome, _), n in self.outcomes.items() if outcome != "solved")


@contextlib.contextmanager
def provider(latency_s: float, directory: Path) -> Iterator[int]:
    """Start a simulated provider without limits that answers after `latency_s`; yield its port."""
    directory.mkdir(parents=True, exist_ok=True)
    text = pool_text("", latency_s, name="up")
    with serving(text, directory / "upstream.jsonl") as server:
        yield server.port


def play(
    front: Front,
    directory: Path,
    *,
    limit: str,
    n: int,
    mode: str = "fixed",
    options: tuple[str, ...] = (),
) -> Run:
    """Run `n` cases of one request each through the proxy.

    Args:
        front: The proxy, unused so far.
        directory: The directory for the run's files.
        limit: The limit that the pool declares for the key, such as `workers = 20`.
        mode: `fixed` or `adaptive`.
        options: More options of pytest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    pool = _POOL.format(port=front.port, limit=limit)
    directory.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    directory.joinpath("test_suite.py").write_text(SUITE + cases(n), encoding="utf-8")
    directory.joinpath("pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    out = directory / "run"
    command = [
        *(*PYTEST, "-q"),
        *("--ultrapar-pool", "pool.toml", "--ultrapar-out", str(out)),
        *("--ultrapar-coverage", "0", "--ultrapar-rate-mode", mode, *options),
    ]
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, cwd=directory, env=_environment(directory), check=False,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output.seek(0)
        said = output.read().decode(errors="replace")
    if done.returncode not in {0, 1}:
        msg = f"pytest ended with exit code {done.returncode}:\n{said}"
        raise RuntimeError(msg)
    rows = pq.read_table(out / "results.parquet").to_pylist()
    requests = front.requests()
    return Run(
        requests=requests,
        outcomes=Counter((row["outcome"], row["kind"]) for row in rows),
        time_s=span_s(requests),
        output=said,
    )


def _environment(directory: Path) -> dict[str, str]:
    left_out = ("PYTEST_", "PYTHONDONTWRITEBYTECODE", "ULTRAPAR_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PROXIES_KEY": default_token("up", "key0"),
        "ULTRAPAR_LOCK_DIR": str(directory / "locks"),
    }
