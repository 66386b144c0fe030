"""What a run of a million cases costs a cluster: `python -m benchmarks.million --out DIR`.

Shards K/N of one run, one host each, against a provider without latency, one after another or some
at a time. Printed are the times, the memory of the server and the peak of each process of a host.
Two cores take hours for a million requests: `--shards 1` runs one shard of the eight, which is as
large as the others are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
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
"""Numbers of one test function."""


class Watch:
    """The largest memory that each process below one had, by its command."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.peaks: dict[int, tuple[str, int]] = {}

    def look(self) -> None:
        """Note what is there now."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError, IndexError, ValueError):
                    stat = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
                    parents[int(entry.name)] = int(stat[1])
        for pid in parents:
            above = pid
            while above in parents and above != self.root:
                above = parents[above]
            if above == self.root:
                with suppress(OSError, IndexError):
                    self._note(pid)

    def _note(self, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
        if "VmHWM:" in status:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            named = next((w for w in words if w.startswith(("pytest_ultrapar", "-c"))), "pytest")
            name = "worker" if named == "-c" else named
            self.peaks[pid] = name, int(status.partition("VmHWM:")[2].split()[0])


def write_suite(folder: Path, cases: int) -> None:
    """Tests of that many cases over all models, in several files."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    numbers = cases // MODELS
    for at, begin in enumerate(range(0, numbers, OF_A_FILE)):
        text = SUITE.format(begin=begin, end=min(begin + OF_A_FILE, numbers))
        (folder / f"test_{at:04}.py").write_text(text, "utf-8")


def run_shard(
    folder: Path, shard: Shard, words: list[str], environ: dict[str, str]
) -> tuple[float, int, dict[int, tuple[str, int]]]:
    """One host's run of a shard: its seconds, exit code and processes."""
    log = folder / f"{shard.host}.log"
    began_s = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                *PYTEST, "-q", "-q", *words, f"--ultrapar-shard={shard}", "--ultrapar-record=none",
                f"--ultrapar-out={folder / shard.host}", "--ultrapar-report=off",
            ],
            cwd=folder / "suite", env=environ, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    watch = Watch(process.pid)
    try:
        while process.poll() is None:
            watch.look()
            time.sleep(1.0)
    finally:
        process.kill()
        process.wait()
    return time.monotonic() - began_s, process.returncode, watch.peaks


def main() -> None:
    """Run the shards and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--of", type=int, default=8, help="how many shards there are")
    parser.add_argument("--shards", help="which to run: 1,2 (default: all)")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--port", type=int, help="of the server of the cluster")
    parser.add_argument("words", nargs="*", default=["-n0"], help="for pytest, after --")
    arguments = parser.parse_args()
    folder = arguments.out.absolute()
    write_suite(folder / "suite", arguments.cases)
    path = folder / "pool.toml"
    path.write_text(POOL, "utf-8")
    numbers = map(int, arguments.shards.split(",")) if arguments.shards else None
    shards = [Shard(k, arguments.of) for k in numbers or range(1, arguments.of + 1)]
    pool = load_pool(path, environ={}, overrides=Overrides())
    provider = SimulatorProcess.start(pool, log_path=folder / "simulator.jsonl")
    words = [
        *arguments.words, f"--ultrapar-pool={path}", "--ultrapar-cluster-run=million",
        f"--ultrapar-simulator={provider.base_url('lab').split('/lab')[0]}",
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
                for shard, (took_s, code, peaks) in zip(
                    shards, threads.map(run, shards), strict=True
                ):
                    memory = client.info("memory")
                    print(f"shard {shard}: exit code {code} after {took_s:.0f} s", flush=True)
                    for name, kib in sorted(peaks.values(), key=lambda one: -one[1]):
                        print(f"  {name}: {kib / 1024:.0f} MiB at most")
                    print(
                        f"  server: {memory['used_memory'] / 2**20:.1f} MiB, at most "
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
