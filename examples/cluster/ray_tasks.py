"""Run one host of a cluster run on each node of a Ray cluster.

    python ray_tasks.py nightly-17 SUITE --ultrapar-pool pool.toml -n 4

All nodes need pytest-ultrapar[cluster] and the environment variables with the pool's keys. The
suite and the pool must have the same path on all nodes: use a shared file system, or the job's
working directory. The script reads the server's URL from ULTRAPAR_CLUSTER. Run directories are in
OUT, by default `runs/`. If OUT is not on a shared file system, collect them before the merge.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def command(run: str, host: str, arguments: list[str], out: Path) -> list[str]:
    """Return the command line of one host."""
    return [
        sys.executable, "-m", "pytest", *arguments,
        "--ultrapar-cluster-run", run,
        "--ultrapar-cluster-host", host,
        f"--ultrapar-out={out / host}",
    ]  # fmt: skip


def run_host(run: str, host: str, arguments: list[str], out: Path, server: str) -> int:
    """Run one host on this node, and return its exit code."""
    environ = os.environ | {"ULTRAPAR_CLUSTER": server}
    return subprocess.run(command(run, host, arguments, out), env=environ, check=False).returncode


def main(run: str, arguments: list[str]) -> int:
    """Run a host on every node, and return the highest exit code."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    out = Path(os.environ.get("OUT", "runs")).absolute()
    server = os.environ["ULTRAPAR_CLUSTER"]
    ray.init()
    # No retries: if a host dies, the other hosts run its cases.
    host = ray.remote(num_cpus=1, max_retries=0)(run_host)
    tasks = []
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"ray-{node['NodeID'][:12]}"
            tasks.append(
                host.options(scheduling_strategy=here).remote(run, name, arguments, out, server)
            )
    codes = ray.get(tasks)
    print(f"exit codes: {codes}; now: ultrapar merge {out}/* --out merged")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
