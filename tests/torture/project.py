"""The small project of the tortured runs: a pool, a suite, and its own log, the witness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.torture.plan import Plan

WITNESS = "witness.jsonl"
N_MODULES = 2
"""Test files of the suite."""
POOL = """\
schema = 1
[[provider]]
name = "sim"
api = "simulated"
keys = [{keys}]
per_key = {{ workers = {seats} }}
latency = {{ kind = "log-normal", median_s = {latency_s:.4f}, sigma = 0.5 }}
[[provider.model]]
name = "echo"
"""
WITNESS_MODULE = '''
"""This suite's own log, a line at a time; a killed process loses no line."""
import json, os, pathlib, time

_fd = os.open(pathlib.Path(__file__).with_name("witness.jsonl"),
              os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def say(event, case=-1, turn=-1, episode=-1):
    line = {"event": event, "case": case, "turn": turn, "episode": episode,
            "pid": os.getpid(), "t_s": time.monotonic()}
    os.write(_fd, json.dumps(line).encode() + b"\\n")
'''
CONFTEST = """
import os
from witness import say

def pytest_collection_finish(session):
    if os.environ.get("PYTEST_XDIST_WORKER") or not session.config.getoption("numprocesses", 0):
        say("collected")
"""
SUITE = """
import os, time
import pytest
from pytest_ultrapar import prefetch
from witness import say

say("import")

@prefetch
async def talk(llm, number) -> dict:
    episode = int.from_bytes(os.urandom(6), "big")
    messages = [{{"role": "user", "content": f"case {{number}}"}}]
    for turn in range({turns}):
        say("ask", number, turn, episode)
        reply = await llm.chat(messages)
        messages.append({{"role": "assistant", "content": reply.text}})
        messages.append({{"role": "user", "content": f"case {{number}}, turn {{turn + 1}}"}})
    say("ended", number, -1, episode)
    return {{"number": number, "episode": episode}}

@pytest.mark.parametrize("number", range({first}, {end}))
def test_{name}(talk, number, grade):
    time.sleep({body_s})
    assert talk["number"] == number
    grade("solved", episode=talk["episode"])
    say("graded", number, -1, talk["episode"])

def test_plain_{name}():
    pass
"""


class Line(msgspec.Struct, frozen=True):
    """One line of the witness.

    Attributes:
        event: `import` and `collected` of a process; `ask` and `ended` of an episode; `graded`.
        case: The case's number.
        episode: Drawn again each time that an episode runs.
        t_s: Monotonic seconds of the machine, as in the server's log.
    """

    event: str
    case: int
    turn: int
    episode: int
    pid: int
    t_s: float


@dataclass
class Witness:
    """Read the suite's own lines as they come."""

    path: Path
    offset: int = 0

    def new(self) -> Iterator[Line]:
        """The lines since the last call; a half-written line comes next time."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self.offset += len(whole)
        yield from msgspec.json.Decoder(Line).decode_lines(whole)


def write_project(folder: Path, plan: Plan) -> None:
    """Write pool and suite of a round."""
    keys = ", ".join(f'{{ name = "key{n}" }}' for n in range(plan.keys))
    pool = POOL.format(keys=keys, seats=plan.seats, latency_s=plan.latency_s)
    half = plan.n_cases // 2
    parts = (("left", 0, half), ("right", half, plan.n_cases))
    folder.mkdir(parents=True)
    for name in ("tmp", "locks"):
        folder.joinpath(name).mkdir(mode=0o700)
    folder.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    folder.joinpath("pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    folder.joinpath("witness.py").write_text(WITNESS_MODULE, encoding="utf-8")
    folder.joinpath("conftest.py").write_text(CONFTEST, encoding="utf-8")
    for name, first, end in parts:
        text = SUITE.format(name=name, first=first, end=end, turns=plan.turns, body_s=plan.body_s)
        folder.joinpath(f"test_{name}.py").write_text(text, encoding="utf-8")
