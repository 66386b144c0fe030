"""What graders cost beside the same processes without us: `python -m benchmarks.graders`.

Programs are asked of a scripted server, 20 at once, and each is graded in a process of its own, of
which four run at once; some loop for ever. The other side is `_bare`: 20 threads that ask, and
four processes that grade as soon as there is an answer. Both are timed from the start of Python to
its end, in turn; so is grading alone (`--ultrapar-regrade`, and `_bare` on the answers it kept).
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
    """What is asked of the server, which answers with the program."""
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
    """Ask where there is a port, else take the answers that were kept; grade them."""
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
    """Seconds that a command takes.

    Raises:
        SystemExit: It ended badly.
    """
    ways = (checkout, Path(__file__).parents[1], os.environ.get("PYTHONPATH", ""))
    here = os.pathsep.join(map(str, ways))
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        # The plugins of an environment for development take 0.2 s to load.
        env=os.environ | {"PYTHONPATH": here, "KEY0": "k", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.monotonic() - began_s


def pair(checkout: Path, seed: int, given: argparse.Namespace) -> Iterator[float]:
    """Seconds of the whole without us and with us, and of grading alone."""
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
    parser.add_argument("--n", type=int, default=328, help="programs")
    parser.add_argument("--loops", type=float, default=0.04, help="share that loops for ever")
    parser.add_argument("--limit", type=float, default=3.0, help="seconds for each")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--idle", action="store_true", help="loops take no CPU")
    parser.add_argument("--answer", type=float, default=0.5, help="seconds")
    parser.add_argument("--option", action="append", default=[], help="of pytest, such as -n2")
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
