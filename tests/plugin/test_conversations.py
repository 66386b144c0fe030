"""A conversation interrupted by a crash continues from its stored answers, however it is sent."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.analysis import compaction
from pytest_ultrapar.broker.spending_file import read_spending
from pytest_ultrapar.pool.money import UNITS
from pytest_ultrapar.records import EpisodeEnded, EpisodeStarted
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.journal_history import cut_off_episodes, read_history
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import SPENDING_FILE
from tests.family import workers_of
from tests.journals import scan_journal
from tests.plugin.conftest import Project
from tests.raw_server import Peer, Request, json_response
from tests.running import Running, run_pytest, wait_until
from tests.scripted_server import ScriptedServer

SEATS = 4
N_CASES, N_TURNS = 10, 6
PRICES = "price_per_mtok_in = 3\nprice_per_mtok_out = 11\n"
BUDGET = ("--ultrapar-budget=1",)
ONE = (3 * 3 + 5 * 11) / 1e6
"""The cost of a request."""
ASKS = {
    "chat": """
async def ask(llm, messages):
    return (await llm.chat(messages)).text
""",
    "role": """
async def ask(llm, messages):
    asked = llm.role("judge") if len(messages) % 4 == 3 else llm
    return (await asked.chat(messages)).text
""",
    "openai": """
async def ask(llm, messages):
    answers = llm.openai().chat.completions
    return (await answers.create(model="m", messages=messages)).choices[0].message.content
""",
    "anthropic": """
async def ask(llm, messages):
    client = llm.anthropic()
    answer = await client.messages.create(model="m", max_tokens=20, messages=messages)
    return answer.content[0].text
""",
    "base_url": """
import asyncio, json, sys

CODE = "import json, sys, urllib.request as u\\n" \\
    "asked = u.Request(sys.argv[1] + '/v1/chat/completions', sys.argv[3].encode(), " \\
    "{'authorization': 'Bearer ' + sys.argv[2], 'content-type': 'application/json'})\\n" \\
    "print(json.load(u.urlopen(asked))['choices'][0]['message']['content'])"

async def ask(llm, messages):
    body = json.dumps({"model": "m", "messages": messages})
    command = [sys.executable, "-S", "-c", CODE, llm.base_url, llm.api_key, body]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    return said.decode().strip()
""",
}
SUITE = """
import pytest
from pytest_ultrapar import prefetch
{ask}
@prefetch
async def talk(llm, number) -> list:
    messages = []
    for turn in range({n_turns}):
        messages.append({{"role": "user", "content": f"slow 0.02 {{number}}-{{turn}}{extra}"}})
        said = await ask(llm, messages)
        messages.append({{"role": "assistant", "content": said}})
    return [one["content"] for one in messages]

@pytest.mark.parametrize("number", range({n_cases}))
def test_it(talk, number, grade):
    grade(len(talk) == 2 * {n_turns}, length=len(talk))
"""
ROLE = '\n[role.judge]\nmodel = "m"\n'


class MessagesServer(ScriptedServer):
    """The same server with Anthropic's API; it answers after 20 ms with the prompt's last word."""

    async def _answered(self, peer: Peer, request: Request) -> None:
        if request.method == "GET":
            await peer.send(json_response({"data": []}))
            return
        body = request.json()
        prompt = body["messages"][-1]["content"]
        seen = self.log.arrived(peer.number, prompt, request.headers["x-api-key"], body["model"])
        await asyncio.sleep(0.02)
        content = [{"type": "text", "text": prompt.split()[-1]}]
        usage = {"input_tokens": 3, "output_tokens": 5}
        answer = {"id": "x", "type": "message", "role": "assistant", "model": "m"}
        answer |= {"content": content, "stop_reason": "end_turn", "usage": usage}
        await peer.send(json_response(answer))
        self.log.ended(seen, status=peer.status, left=False)
        self.log.work.now -= 1


class Talks:
    """A suite of conversations that is killed at some of their requests and resumed."""

    def __init__(self, project: Project, server: ScriptedServer, way: str) -> None:
        self.project = project
        self.server = server
        self.way = way
        provider = "anthropic" if way == "anthropic" else "openai"
        url = server.base_url.removesuffix("/v1" if way == "anthropic" else "")
        more = PRICES + ("subject = true\n" if way == "role" else "")
        project.write_pool(seats=SEATS, base_url=url, api=provider, model=more)
        project.pytester.makeini("[pytest]")
        pool = project.pytester.path / "pool.toml"
        pool.write_text(pool.read_text() + (ROLE if way == "role" else ""))
        self.write()

    def write(self, extra: str = "", n_cases: int = N_CASES) -> None:
        text = SUITE.format(ask=ASKS[self.way], n_turns=N_TURNS, n_cases=n_cases, extra=extra)
        self.project.pytester.path.joinpath("test_suite.py").write_text(text)

    def kill_at(self, n: int, *options: str) -> int:
        """Kill the run after this many requests; return the number of requests by then."""
        with Running(self.project.pytester.path, *BUDGET, *options) as running:
            assert self.server.wait_for(lambda prompts: len(prompts) >= n), running.output
            running.kill()
        return len(self.server.prompts)

    def resume(self, *options: str) -> str:
        """Resume the run to its end; return its output."""
        resumed = (*BUDGET, "--ultrapar-resume=latest", *options)
        return " ".join(run_pytest(self.project.pytester.path, *resumed).stdout.split())

    def twice(self) -> int:
        """The number of repeated requests, not counting the first of each."""
        return sum(n - 1 for n in Counter(self.server.prompts).values())

    def figures(self) -> dict[str, tuple]:
        """The results of each case, without times and places."""
        same = (
            "outcome",
            "score.length",
            "n_attempts",
            "n_turns",
            "tokens_in",
            "tokens_out",
            "cost",
        )
        return {row["nodeid"]: tuple(row[name] for name in same) for row in self.project.rows()}

    def n_open(self) -> int:
        """The number of conversations that the killed run had begun and not ended."""
        records = [record for _, record in scan_journal(self.project.directory / "journal")]
        begun = {one.case_id for one in records if isinstance(one, EpisodeStarted)}
        return len(begun - {one.case_id for one in records if isinstance(one, EpisodeEnded)})


@pytest.fixture
def talks(project, server):
    """A function that makes the suite for a way of sending requests."""
    with ExitStack() as stack:

        def of(way: str) -> Talks:
            own = stack.enter_context(MessagesServer()) if way == "anthropic" else server
            return Talks(project, own, way)

        yield of


def spent(talks: Talks) -> int:
    return sum(read_spending(talks.project.directory / SPENDING_FILE).values())


def asked_once(talks: Talks, n_open: int) -> None:
    """Only requests in flight were sent twice, and each request has one row and one cost."""
    asked = {f"slow 0.02 {case}-{turn}" for case in range(N_CASES) for turn in range(N_TURNS)}
    assert set(talks.server.prompts) == asked
    assert talks.twice() <= SEATS + n_open
    sent = [row for row in talks.project.rows("attempts") if row["replayed"] is None]
    # The requests in flight at the kill have no row.
    assert 0 <= len(talks.server.prompts) - len(sent) <= talks.twice()
    summary = json.loads((talks.project.directory / "summary.json").read_text())
    assert summary["n_requests"] == len(sent)
    n_answered = sum(row["outcome"] == "ok" for row in sent)
    assert summary["cost"]["total"] == pytest.approx(ONE * n_answered)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("way", ASKS)
def test_killed_conversations_continue_from_their_stored_answers(talks, workers, way, share):
    talks = talks(way)
    n_before = talks.kill_at(round(share * N_CASES * N_TURNS), workers)
    n_open, spent_before = talks.n_open(), spent(talks)
    assert n_open > 0
    said = talks.resume(workers)
    asked_once(talks, n_open)
    n_own = N_TURNS if way != "role" else N_TURNS // 2
    whole = (
        "solved",
        2.0 * N_TURNS,
        n_own,
        n_own,
        3 * n_own,
        5 * n_own,
        pytest.approx(ONE * n_own),
    )
    assert list(talks.figures().values()) == [whole] * N_CASES
    assert spent(talks) - spent_before == round(ONE * UNITS) * (
        len(talks.server.prompts) - n_before
    )
    if share > 0.1:
        assert re.search(r"[1-9]\d* conversations? resumed from stored answers", said), said
    assert "sent a different request" not in said


def summary(talks: Talks) -> dict:
    return json.loads((talks.project.directory / "summary.json").read_text())


@pytest.mark.slow
def test_conversation_that_sends_a_different_request_continues_live_and_is_counted(talks):
    talks = talks("chat")
    talks.write(" {__import__('os').getpid() if turn > 1 else ''}")
    talks.kill_at(30, "-n0")
    n_open = talks.n_open()
    said = talks.resume("-n0")
    found = summary(talks)
    assert found["n_resumed"] + found["n_strayed"] <= n_open
    assert found["n_strayed"] > 0
    others = "1 other" if found["n_strayed"] == 1 else f"{found['n_strayed']} others"
    assert f"; {others} sent a different request and got new answers" in said
    # The first two requests are the same each time, and as many of them as usual are sent twice.
    same = Counter(one for one in talks.server.prompts if one.endswith(("-0 ", "-1 ")))
    assert sum(n - 1 for n in same.values()) <= SEATS
    assert {row["outcome"] for row in talks.project.rows()} == {"solved"}
    sent = [row for row in talks.project.rows("attempts") if row["replayed"] is None]
    assert found["n_requests"] == len(sent)
    assert found["cost"]["total"] == pytest.approx(ONE * len(sent))


@pytest.mark.slow
@pytest.mark.parametrize("record", ["none", "text"])
def test_run_without_stored_answers_restarts_its_conversations_and_reports_it(talks, record):
    talks = talks("chat")
    talks.kill_at(30, "-n0", f"--ultrapar-record={record}")
    n_open = talks.n_open()
    said = talks.resume("-n0", f"--ultrapar-record={record}")
    assert f"{n_open} cases interrupted, to be started again, because" in said
    assert f"--ultrapar-record {record} stores no answers" in said
    assert talks.twice() > SEATS
    assert {row["outcome"] for row in talks.project.rows()} == {"solved"}


@pytest.mark.slow
def test_conversations_survive_a_crash_in_the_session_that_resumes(talks):
    talks = talks("chat")
    talks.kill_at(15, "-n0")
    n_open = talks.n_open()
    for n in (30, 45):
        talks.kill_at(n, "-n0", "--ultrapar-resume=latest")
        n_open += talks.n_open()
    talks.resume("-n0")
    sent = [row for row in talks.project.rows("attempts") if row["replayed"] is None]
    assert summary(talks)["n_requests"] == len(sent)
    assert talks.twice() <= 3 * SEATS + n_open
    assert {(row["outcome"], row["n_attempts"]) for row in talks.project.rows()} == {
        ("solved", N_TURNS)
    }


@pytest.mark.slow
def test_interrupted_conversations_continue_too(talks):
    talks = talks("chat")
    with Running(talks.project.pytester.path, *BUDGET, "-n0") as running:
        assert talks.server.wait_for(lambda prompts: len(prompts) >= 30), running.output
        running.interrupt()
        running.wait()
    said = talks.resume("-n0")
    assert re.search(r"[1-9]\d* conversations? interrupted: stored answers are used first", said)
    asked_once(talks, 0)
    assert {row["n_attempts"] for row in talks.project.rows()} == {N_TURNS}


@pytest.mark.slow
def test_conversations_of_a_dead_worker_continue_on_another(talks):
    talks = talks("chat")
    with Running(talks.project.pytester.path, *BUDGET, "-n2") as running:
        assert talks.server.wait_for(lambda prompts: len(prompts) >= 20), running.output
        workers_of(running.process.pid)[0].kill()
        code, output = running.wait()
    assert code == 0, output
    asked_once(talks, SEATS)
    assert summary(talks)["n_resumed"] > 0


def cut(journal: Path, of_case: str) -> int:
    """Remove an episode's end, as if killed before it; return the number of its records."""
    n_left_out = 0
    for path in segments(journal):
        lines = path.read_bytes().splitlines(keepends=True)
        ends = (b'"type":"ended","case_id":"%b"', b'"type":"grade","case_id":"%b"')
        gone = [one for one in lines if any(end % of_case.encode() in one for end in ends)]
        n_left_out += len(gone)
        path.write_bytes(b"".join(one for one in lines if one not in gone))
    return n_left_out


def test_conversation_without_an_end_sends_only_requests_without_an_answer(talks):
    talks = talks("chat")
    talks.write(n_cases=2)
    assert talks.project.run("-n0").ret == 0
    first, asked = talks.project.rows(), list(talks.server.prompts)
    assert cut(talks.project.directory / "journal", first[0]["case_id"]) == 2
    talks.server.reset()
    result = talks.project.run("-n0", "--ultrapar-resume=latest")
    assert result.ret == 0
    said = " ".join(result.stdout.str().split())
    assert "1 finished episode resumed; 1 conversation interrupted" in said
    assert "1 conversation resumed from stored answers" in said
    assert talks.server.prompts == ["slow 0.02 0-5"]
    figures = ("outcome", "value", "n_attempts", "n_turns", "tokens_in", "tokens_out", "cost")
    assert [[row.get(name) for name in figures] for row in talks.project.rows()] == [
        [row.get(name) for name in figures] for row in first
    ]
    found = Counter(row["replayed"] for row in talks.project.rows("attempts"))
    # The last request is recorded only by the end.
    assert found == {None: len(asked), "resumed": N_TURNS - 1}


@pytest.mark.slow
@pytest.mark.parametrize("most_at_once", [50_000, 0])
def test_requests_of_a_killed_run_count_before_it_is_resumed(
    talks, capsys, monkeypatch, most_at_once
):
    monkeypatch.setattr(compaction, "MOST_AT_ONCE", most_at_once)
    talks = talks("role")
    talks.write(n_cases=3)
    assert talks.project.run("-n0").ret == 0
    run = talks.project.directory.resolve()
    manifest = read_manifest(run)
    write_manifest(run, msgspec.structs.replace(manifest, ended_at=None, segments={}))
    for row in talks.project.rows()[:2]:
        assert cut(run / "journal", row["case_id"]) == 2
    whole = len(talks.server.prompts)
    # A last request is recorded only by the end.
    asked_once_each = {"n_requests": whole - 2, "cost": pytest.approx(ONE * (whole - 2))}

    def counted(directory: Path) -> dict:
        found = json.loads((directory / "summary.json").read_text())
        n_rows = pq.read_table(directory / "attempts.parquet").num_rows
        assert n_rows == found["n_requests"]
        return {"n_requests": n_rows, "cost": found["cost"]["total"]}

    compaction.compact(run)
    assert counted(run) == asked_once_each
    assert cli.main(["show", str(run), "--no-pager"]) == 0
    assert len(re.findall(r"^interrupted .*\b3\b", capsys.readouterr().out, re.MULTILINE)) == 2
    assert cli.main(["show", str(run), "m-1-r0", "--no-pager"]) == 0
    assert "slow 0.02 1-4" in capsys.readouterr().out

    merged = talks.project.pytester.path / "merged"
    cli.main(["merge", str(run), "--out", str(merged), "--coverage", "0.1"])
    assert counted(merged) == asked_once_each
    talks.project.run("-n0", f"--ultrapar-regrade={run}", "--ultrapar-out=graded")
    assert counted(talks.project.pytester.path / "graded") == asked_once_each

    assert talks.project.run("-n0", f"--ultrapar-resume={run}").ret == 0
    assert len(talks.server.prompts) == whole + 2
    sent = [row for row in talks.project.rows("attempts") if row["replayed"] is None]
    assert len(sent) == summary(talks)["n_requests"] == whole


@pytest.mark.slow
def test_answers_are_stored_immediately_while_another_request_is_in_flight(talks):
    talks = talks("chat")
    talks.project.suite("""
import asyncio

@prefetch
async def three(llm) -> list:
    asked = [[{"role": "user", "content": one}] for one in ("say a", "later b", "say c")]
    return [one.text for one in await asyncio.gather(*(llm.chat(one) for one in asked))]

def test_it(three):
    assert three == ["a", "b", "c"]
""")
    with Running(talks.project.pytester.path, *BUDGET, "-n0") as running:
        assert talks.server.wait_for(lambda prompts: len(prompts) == 3), running.output
        wait_until(lambda: n_exchanges(talks.project.directory / "journal") == 2)
        running.kill()
    assert "1 conversation resumed from stored answers" in talks.resume("-n0")
    assert Counter(talks.server.prompts) == {"say a": 1, "say c": 1, "later b": 2}


def n_exchanges(journal: Path) -> int:
    """The number of exchanges of episodes that have not ended."""
    cut_off = cut_off_episodes(journal, read_history(journal)).values()
    return sum(len(one.exchanges) for one in cut_off)
