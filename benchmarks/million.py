"""The cost of a run with a million cases on a cluster: `python -m benchmarks.million --out DIR`.

Each host runs one shard K/N of a run, against a provider without latency. Shards run one or several
at a time. The program prints the times, the memory of the server, and the peak memory of each
process on a host. A million requests take hours on two cores: `--shards 1` runs only one of the
eight shards, which have equal sizes.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.overhead.command import Checkout, Cost
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.pool.settings import Shard
from pytest_ultrapar.simulator.process import SimulatorProcess
from tests.key_value_server import KeyValueServer
from tests.light import PYTEST

POOL = """
schema = 1
[[provider]]
name = "lab"
api = "simulated"
keys = [{ name = "key0" }, { name = "key1" }, { name = "key2" }, { name = "key3" }]
per_key = { workers = 64, qps = 100000 }
latency = { kind = "fixed", median_s = 0.0 }
[[provider.model]]
name = "m1"
[[provider.model]]
name = "m2"
"""
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, number) -> str:
    return (await llm.chat([{{"role": "user", "content": f"{{number}}"}}], max_tokens=1)).text

@pytest.mark.parametrize("number", range({begin}, {end}))
def test_it(answer, number, grade): grade("solved")
"""
MODELS = 2
OF_A_FILE = 2_500
"""The cases of one model in one file."""


def write_suite(folder: Path, cases: int) -> None:
    """Write tests with this number of cases over all models, in several files."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    numbers = cases // MODELS
    for at, begin in enumerate(range(0, numbers, OF_A_FILE)):
        text = SUITE.format(begin=begin, end=min(begin + OF_A_FILE, numbers))
        (folder / f"test_{at:04}.py").write_text(text, "utf-8")


def run_shard(folder: Path, shard: Shard, words: list[str], environ: dict[str, str]) -> Cost:
    """Run a shard as one host."""
    argv = [
        *PYTEST, "-q", "-q", *words, f"--ultrapar-shard={shard}", "--ultrapar-record=none",
        f"--ultrapar-out={folder / shard.host}", "--ultrapar-report=off",
    ]  # fmt: skip
    return Checkout(environ).run(argv, folder=folder / "suite", watched=True)


def main() -> None:
    """Run the shards, and print their cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--of", type=int, default=8, help="number of shards")
    parser.add_argument("--shards", help="shards to run, such as 1,2 (default: all)")
    parser.add_argument("--at-once", type=int, default=1, help="how many shards to run at once")
    parser.add_argument("--port", type=int, help="port of the cluster's server")
    parser.add_argument("words", nargs="*", default=["-n0"], help="arguments for pytest, after --")
    arguments = parser.parse_args()
    folder = arguments.out.absolute()
    write_suite(folder / "suite", arguments.cases)
    path = folder / "pool.toml"
    path.write_text(POOL, "utf-8")
    numbers = map(int, arguments.shards.split(",")) if arguments.shards else None
    shards = [Shard(k, arguments.of) for k in numbers or range(1, arguments.of + 1)]
    pool = load_pool(path, environ={}, overrides=Overrides())
    provider = SimulatorProcess.start(pool, log_path=Path(os.devnull))
    words = [
        *arguments.words, f"--ultrapar-pool={path}", "--ultrapar-cluster-run=million",
        f"--ultrapar-simulator=http://127.0.0.1:{provider.port}",
    ]  # fmt: skip
    try:
        with KeyValueServer.start(port=arguments.port) as server:
            client = server.client()
            print(f"server before: {client.info('memory')['used_memory'] / 2**20:.1f} MiB")
            environ = dict(
                os.environ, ULTRAPAR_CLUSTER=server.url, ULTRAPAR_STATE_DIR=str(folder / "state"),
                ULTRAPAR_LOCK_DIR=str(folder / "locks"),
            )  # fmt: skip
            run = partial(run_shard, folder, words=words, environ=environ)
            with ThreadPoolExecutor(arguments.at_once) as threads:
                for shard, cost in zip(shards, threads.map(run, shards), strict=True):
                    memory = client.info("memory")
                    print(f"shard {shard}: {cost.wall_s:.0f} s", flush=True)
                    for name, mib in cost.peaks_mib.items():
                        print(f"  {name}: peak {mib:.0f} MiB")
                    print(
                        f"  server: {memory['used_memory'] / 2**20:.1f} MiB, peak "
                        f"{memory['used_memory_peak'] / 2**20:.1f} MiB, process "
                        f"{memory['used_memory_rss'] / 2**20:.1f} MiB",
                        flush=True,
                    )
            for key in sorted(client.scan_iter(count=1000)):
                print(f"  {key.decode()}: {client.memory_usage(key, samples=0) or 0:,} bytes")
    finally:
        provider.stop()


if __name__ == "__main__":
    main()
