"""The cost of graders, compared with the same processes alone: `python -m benchmarks.graders`.

A scripted server answers with programs, 20 requests at a time. Each program is graded in a separate
process, four at a time; some programs loop forever. The plugin is compared with `_bare`: 20 threads
send requests, and four processes grade each answer as soon as it arrives. Both are timed in turn,
from the start of Python to its end. Grading alone is timed too (`--ultrapar-regrade`, and `_bare`
with its stored answers).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import repeat
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import local

from tests.scripted_server import ScriptedProcess

POOL = """
schema = 1
[[provider]]
name = "p"
api = "openai"
base_url = "{url}"
keys = [{{ name = "key0", env = "KEY0" }}]
per_key = {{ workers = 20 }}
[[provider.model]]
name = "m"
"""
SUITE = """
import json, pathlib
import pytest
from pytest_ultrapar import grader, prefetch

PROMPTS = json.loads(pathlib.Path(__file__).with_name("prompts.json").read_text())

@prefetch
async def program(llm, number) -> str:
    return (await llm.chat(PROMPTS[number])).text

@grader(jobs={jobs}, timeout_s={limit})
def passes(program) -> bool:
    try:
        exec(program, {{}})
    except Exception:
        return False
    return True

@pytest.mark.parametrize("number", range({n}))
def test_it(passes, grade): grade(passes)
"""
PROGRAM = """
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
for n in range({n}):
    assert fib(n) >= 0
"""
LOOP = "while True: pass"
IDLE = "import time\nwhile True: time.sleep(1)"


def prompts(given: argparse.Namespace, seed: int) -> list[str]:
    """The prompts. The server answers them with the programs."""
    rng = random.Random(seed)
    loops = {*rng.sample(range(given.n), round(given.n * given.loops))}
    loop = IDLE if given.idle else LOOP
    lengths = [rng.randint(10, 18) for _ in range(given.n)]
    programs = (
        loop if n in loops else PROGRAM.format(n=length) for n, length in enumerate(lengths)
    )
    return [f"slow {given.answer} {program}" for program in programs]


def _run(program: str, said: Connection) -> None:
    try:
        exec(program, {})  # noqa: S102 - as the grader does
    except Exception:  # noqa: BLE001 - as the grader does
        said.send(False)
    else:
        said.send(True)


def _graded(program: str, limit_s: float) -> bool:
    ours, theirs = Pipe(duplex=False)
    process = Process(target=_run, args=(program, theirs))
    process.start()
    theirs.close()
    passed = ours.poll(limit_s) and ours.recv()
    process.kill()
    process.join()
    return bool(passed)


def _bare(folder: Path, port: int, jobs: int, limit_s: float) -> None:
    """Grade answers. With a port, send the requests first; otherwise read the stored answers."""
    kept, of_thread = folder / "answers.json", local()

    def ask(prompt: str) -> str:
        if not hasattr(of_thread, "connection"):
            of_thread.connection = HTTPConnection("127.0.0.1", port)
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        headers = {"authorization": "Bearer k", "content-type": "application/json"}
        of_thread.connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = json.loads(of_thread.connection.getresponse().read())
        return str(answer["choices"][0]["message"]["content"])

    with ProcessPoolExecutor(jobs) as graders, ThreadPoolExecutor(20) as threads:
        if port:
            asked = json.loads((folder / "prompts.json").read_text())
            answers = [
                (one, graders.submit(_graded, one, limit_s)) for one in threads.map(ask, asked)
            ]
            kept.write_text(json.dumps([one for one, _ in answers]))
            passed = [one.result() for _, one in answers]
        else:
            passed = [*graders.map(_graded, json.loads(kept.read_text()), repeat(limit_s))]
    (folder / "graded.json").write_text(json.dumps(passed))


def timed(command: Iterable[str], folder: Path, checkout: Path) -> float:
    """Run a command, and return its duration in seconds.

    Raises:
        SystemExit: The command failed.
    """
    ways = (checkout, Path(__file__).parents[1], os.environ.get("PYTHONPATH", ""))
    here = os.pathsep.join(map(str, ways))
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        # The plugins of a development environment take 0.2 s to load.
        env=os.environ | {"PYTHONPATH": here, "KEY0": "k", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.monotonic() - began_s


def pair(checkout: Path, seed: int, given: argparse.Namespace) -> Iterator[float]:
    """Yield the seconds of `_bare` and of the plugin, for the whole run and for grading alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = ScriptedProcess(folder, {})
        try:
            (folder / "prompts.json").write_text(json.dumps(prompts(given, seed)))
            (folder / "pool.toml").write_text(POOL.format(url=server.base_url))
            suite = SUITE.format(n=given.n, jobs=given.jobs, limit=given.limit)
            (folder / "test_suite.py").write_text(suite)
            (folder / "pytest.ini").write_text("[pytest]\n")
            bare = ("-m", "benchmarks.graders", "--bare", str(given.jobs), str(given.limit))
            own = ("-p", "pytest_ultrapar.plugin", "--ultrapar-pool=pool.toml", "-q")
            ours = ("-m", "pytest", *own, *given.option)
            yield timed((*bare, str(server.port)), folder, checkout)
            yield timed(ours, folder, checkout)
            yield timed((*bare, "0"), folder, checkout)
            yield timed((*ours, "--ultrapar-regrade=latest"), folder, checkout)
        finally:
            server.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--n", type=int, default=328, help="number of programs")
    parser.add_argument(
        "--loops", type=float, default=0.04, help="share of programs that loop forever"
    )
    parser.add_argument(
        "--limit", type=float, default=3.0, help="time limit of a program, in seconds"
    )
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument(
        "--idle", action="store_true", help="make the loops sleep, so that they use no CPU"
    )
    parser.add_argument(
        "--answer", type=float, default=0.5, help="duration of an answer, in seconds"
    )
    parser.add_argument("--option", action="append", default=[], help="pytest option, such as -n2")
    parser.add_argument("--bare", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        jobs, limit_s, port = given.bare
        _bare(Path.cwd(), int(port), int(jobs), float(limit_s))
        return
    here = Path(__file__).parents[1]
    found: dict[Path, list[tuple[float, ...]]] = {one: [] for one in (*given.before, here)}
    for seed in range(given.rounds):
        for checkout, rows in found.items():
            bare_s, ours_s, bare_alone_s, alone_s = pair(checkout, seed, given)
            rows.append((ours_s / bare_s, alone_s / bare_alone_s))
            print(
                f"{checkout} round {seed}: whole {ours_s:.2f} s against {bare_s:.2f},"
                f" {rows[-1][0]:.3f}; grading alone {alone_s:.2f} s against {bare_alone_s:.2f},"
                f" {rows[-1][1]:.3f}",
                flush=True,
            )
    for checkout, rows in found.items():
        for what, shares in zip(("whole", "grading alone"), zip(*rows, strict=True), strict=True):
            words = f"median {median(shares):.3f}, {min(shares):.3f} to {max(shares):.3f}"
            print(f"{checkout}: n = {len(shares)}, {what}: {words}")


if __name__ == "__main__":
    main()
