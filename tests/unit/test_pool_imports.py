"""Loading a pool stays cheap: every worker does it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"pyarrow", "httpx", "aiohttp", "uvicorn", "asyncio", "xdist", "difflib"}


def test_loading_a_pool_imports_nothing_heavy():
    script = (
        "import sys, pytest_ultrapar\n"
        "before = set(sys.modules)\n"
        "from pytest_ultrapar.pool import config, secret\n"
        "pool = config.load_pool('pool.toml', environ={}, overrides=config.Overrides())\n"
        "secret.read_secrets(pool, {})\n"
        "print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    assert "pytest_ultrapar.pool.config" in done.stdout.split()
    assert HEAVY & set(done.stdout.split()) == set()
