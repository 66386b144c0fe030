"""The documented conflicts and their fixes, on the simulated provider, judged by its log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import ServerLog, ServerRequest, read_server_log
from tests.running import run_pytest
from tests.simulated_pool import pool_text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
QWENS = tuple(f"qwen2.5-{size}-instruct" for size in ("72b", "32b", "14b", "7b", "3b"))
KEYS = ("key0", "key1", "key2")
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def talk(llm, number, difficulty) -> int:
    for turn in range(3):
        await llm.chat([{"role": "user", "content": f"{difficulty} {number} {turn}"}])
    return turn

@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("difficulty", ["very_easy", "medium"])
def test_it(talk):
    assert talk == 2
"""
Span = tuple[float, float]


def write_pool(folder: Path, seats: int, *, persona: str = "echo", latency_s: float = 0.2) -> Path:
    """Write a pool of five Qwen models on three keys, limited only by the seats of a key."""
    path = folder / "pool.toml"
    more = f'persona = "{persona}"'
    path.write_text(
        pool_text(
            f"workers = {seats}", latency_s, name="ideallab", keys=3, models=QWENS, model=more
        )
    )
    return path


class Finished:
    """A finished run: the server's log, and more data from its rows."""

    def __init__(self, folder: Path) -> None:
        path = folder / "simulator.jsonl"
        self.log: ServerLog = read_server_log(path)
        self.server_began_s: float = json.loads(path.read_text().splitlines()[0])["t"]
        self.attempts = pq.read_table(folder / "attempts.parquet").to_pylist()
        rows = pq.read_table(folder / "results.parquet").to_pylist()
        self.case_of = {row["case_id"]: row for row in rows}
        assert {row["outcome"] for row in rows} <= {"solved", "partial", "unsolved"}

    def spans(self, key: str | None = None, parameter: str | None = None) -> dict[tuple, Span]:
        """The time from first arrival to last answer, by model and parameter, in the server's log.

        Without a parameter the log alone identifies requests. With a parameter, a request belongs
        to an attempt of the same model and key that was in flight at its arrival. If there are
        several, it belongs to the attempt that ended first, so that later requests find one.
        """
        found: dict[tuple, list[ServerRequest]] = defaultdict(list)
        unmatched = sorted(self.attempts, key=lambda row: row["t_end_s"])
        for request in self.log.requests:
            name: tuple = (request.model,)
            if parameter is not None:
                mine = next(row for row in unmatched if self._may_be(row, request))
                unmatched.remove(mine)
                name = (request.model, self.case_of[mine["case_id"]][f"param.{parameter}"])
            if key in (None, request.key):
                found[name].append(request)
        return {
            name: (min(r.t_arrival_s for r in own), max(r.t_end_s or r.t_arrival_s for r in own))
            for name, own in found.items()
        }

    def keys_by_model(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for request in self.log.requests:
            found[request.model].add(request.key)
        return found

    def keys_by_flaw_group(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for row in self.attempts:
            case = self.case_of[row["case_id"]]
            found[case["model"], case["param.flaw_group"]].add(row["key"])
        return found

    def _may_be(self, row: dict, request: ServerRequest) -> bool:
        return (
            row["key"] == request.key
            and self.case_of[row["case_id"]]["model"] == request.model
            and row["t_send_s"] <= request.t_arrival_s < row["t_end_s"]
        )


def most_at_once(spans: Iterable[Span]) -> int:
    spans = list(spans)
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


def pytest_run(cwd: Path, pool: Path, *args: str) -> Finished:
    out = pool.parent / "run"
    run_pytest(
        cwd, "-qq", *args, f"--ultrapar-pool={pool}", f"--ultrapar-out={out}", PYTHONPATH=str(ROOT)
    )
    return Finished(out)


def scale(folder: Path, *args: str, seats: int = 20, suite: str = "phase52") -> Finished:
    """Run a small phase 5.2: five models, two difficulties, four cases of each pair."""
    path = folder / suite / "test_scale.py"
    path.parent.mkdir()
    path.write_text(SUITE)
    documented = ("-p", "bench_suites.original_scripts.plugin")
    return pytest_run(folder, write_pool(folder, seats), *documented, str(path), *args)


def flaws(folder: Path, *args: str) -> Finished:
    """Run phase 5.3, with the root conftest."""
    pool = write_pool(folder, 5, persona="obedient", latency_s=0.02)
    few = ("--task-type", "simple_task", "--ultrapar-repeats", "1")
    return pytest_run(ROOT, pool, "bench_suites/phase53", *few, *args)


def test_model_key_puts_four_pairs_on_two_keys_and_two_on_the_third(tmp_path):
    run = scale(tmp_path, "-n0", "--ultrapar-policy", "model-key")
    pairs = {key: run.spans(key, "difficulty") for key in KEYS}
    assert {model for model, _ in pairs["key0"]} == {QWENS[0], QWENS[3]}
    assert {model for model, _ in pairs["key1"]} == {QWENS[1], QWENS[4]}
    assert {model for model, _ in pairs["key2"]} == {QWENS[2]}
    assert [most_at_once(pairs[key].values()) for key in KEYS] == [4, 4, 2]


def test_exclusive_never_has_two_models_on_one_key(tmp_path, workers):
    run = scale(tmp_path, workers, "--ultrapar-policy", "exclusive", seats=3)
    for key in KEYS:
        spans = run.spans(key)
        assert len(spans) == len(QWENS)
        assert most_at_once(spans.values()) == 1


def test_batch_of_three_never_has_more_than_three_models_at_once(tmp_path):
    run = scale(tmp_path, "-n0", "--ultrapar-policy", "batch:3", seats=3)
    spans = run.spans()
    assert most_at_once(spans.values()) <= 3
    last_of_first = max(spans[model,][1] for model in QWENS[:3])
    assert all(last_of_first <= spans[model,][0] for model in QWENS[3:])
    # Each of the first three has its own key.
    keys = run.keys_by_model()
    assert [keys[model] for model in QWENS[:3]] == [{key} for key in KEYS]


def test_phase_mode_starts_no_pair_before_its_time(tmp_path):
    run = scale(tmp_path, "-n0", "--ultrapar-mode", "phase", "--ultrapar-phase-scale", "0.04")
    spans = run.spans(parameter="difficulty")
    order = [(model, level) for level in ("very_easy", "medium") for model in QWENS]
    assert set(spans) == set(order)
    # The server starts before the run does, so this holds on a busy machine, too.
    late_s = [spans[name][0] - run.server_began_s - 0.6 * n for n, name in enumerate(order)]
    assert min(late_s) >= 0
    assert run.keys_by_model() == {
        model: {KEYS[key]} for model, key in zip(QWENS, (0, 1, 2, 0, 1), strict=True)
    }


@pytest.mark.parametrize(("variant", "instances"), [("document", 1), ("ultra-document", 3)])
def test_phase_mode_limits_a_process_to_the_workers_of_its_shard(tmp_path, variant, instances):
    suite = tmp_path / "phase51" / "test_base.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    pool = tmp_path / "pool.toml"
    names = ", ".join(f'"DeepSeek-V3-0324{end}"' for end in ("", "-2", "-3"))
    more = f"instances = [{names}]\nper_instance = {{ workers = 2 }}"
    model = {"models": ["DeepSeek-V3-0324"], "model": more}
    pool.write_text(pool_text("", 0.05, name="azure", **model))
    options = ("--ultrapar-mode", "phase", "--ultrapar-phase-variant", variant)
    run = pytest_run(
        tmp_path, pool, "-p", "bench_suites.original_scripts.plugin", str(suite), "-n2", *options
    )
    assert len({request.instance for request in run.log.requests}) == instances
    assert run.log.max_in_flight() <= 2 * instances


def test_policy_group_key_gives_each_flaw_group_of_a_model_its_own_key(tmp_path):
    run = flaws(tmp_path, "-n0", "--ultrapar-policy", "group-key")
    keys = run.keys_by_flaw_group()
    assert all(len(own) == 1 for own in keys.values())
    for model in QWENS:
        own = [keys[name] for name in keys if name[0] == model]
        assert sorted(map(min, own)) == list(KEYS)
    assert all(own == set(KEYS) for own in run.keys_by_model().values())
