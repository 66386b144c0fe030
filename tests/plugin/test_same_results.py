"""The same cases, prompts, outcomes and scores with any number of processes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.running import run_pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
PLACE_AND_TIME = {
    "run_id", "mode", "queue_wait_s", "rate_wait_s", "backoff_s", "service_s", "duration_s",
    "started_at", "ended_at", "provider", "instance", "key", "worker", "n_attempts",
}  # fmt: skip
SUITE = """
import dataclasses, random
import pytest
from pytest_ultrapar import prefetch

@dataclasses.dataclass(frozen=True)
class Talk:
    words: list[str]
    luck: float

@prefetch
async def talk(llm, model, topic, case) -> Talk:
    words, messages = [], [{"role": "user", "content": f"{topic} {case.seed}"}]
    for turn in range(3):
        reply = await llm.chat(messages, temperature=0)
        words.append(reply.text)
        messages.append({"role": "assistant", "content": reply.text})
        messages.append({"role": "user", "content": f"{turn}"})
    return Talk(words, random.Random(case.seed).random())

@pytest.mark.parametrize("topic", ["alpha", "beta", "gamma"])
def test_talk(talk, topic, grade):
    grade("solved" if talk.luck > 0.5 else "partial", luck=talk.luck)
    assert talk.words[0].startswith(f"echo: {topic}")
"""


def tables(folder: Path, *args: str) -> tuple[str, str]:
    """Results and transcripts without places and times, as text."""
    out = folder / f"run{len(list(folder.glob('run*')))}"
    run_pytest(folder, f"--ultrapar-out={out}", *args)
    rows = pq.read_table(out / "results.parquet").to_pylist()
    kept = [{k: v for k, v in row.items() if k not in PLACE_AND_TIME} for row in rows]
    said = pq.read_table(out / "transcripts.parquet").drop_columns(["run_id"]).to_pylist()
    kept.sort(key=lambda row: row["case_id"])
    said.sort(key=lambda row: (row["case_id"], row["turn"]))
    return json.dumps(kept), json.dumps(said)


@pytest.fixture
def folder(tmp_path):
    tmp_path.joinpath("pool.toml").write_text((REPOSITORY / "pools" / "limits.toml").read_text())
    tmp_path.joinpath("test_suite.py").write_text(SUITE)
    return tmp_path


def test_tables_are_the_same_for_any_number_of_workers(folder):
    # Six cases on four workers: most workers have one case from the start, an edge case of xdist.
    runs = {tables(folder, *args) for args in (["-p", "no:xdist"], ["-n", "4"])}
    ((results, _),) = runs
    assert len(json.loads(results)) == 6


def test_modes_with_one_case_at_a_time_give_the_same_answers(folder):
    ultra = tables(folder, "-n0")
    for at, (mode, n_lanes) in enumerate((("serial", 2), ("rotate", 6)), 1):
        assert tables(folder, "-n0", "--ultrapar-mode", mode) == ultra
        attempts = pq.read_table(folder / f"run{at}" / "attempts.parquet").to_pylist()
        spans = sorted((a["t_send_s"], a["t_end_s"]) for a in attempts)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        assert len({(a["instance"], a["key"]) for a in attempts}) == n_lanes
