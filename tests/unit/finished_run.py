"""Run directories with journals of every kind, for tests of tables and reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pyarrow.parquet as pq

from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitChange, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, LanePause, PauseRecord
from pytest_ultrapar.broker.limit_history import HistoryFile
from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.pool.model import Lane, LaneId
from pytest_ultrapar.pool.money import ModelPrice
from pytest_ultrapar.records import Attempt, Case, EpisodeEnded, EpisodeStarted, Grade, TurnMessage
from pytest_ultrapar.store.cases_file import cases_digest, suite_digest, write_cases
from pytest_ultrapar.store.journal import JournalWriter
from pytest_ultrapar.store.manifest import Manifest, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory

LANE = Lane(LaneId("azure/dep0/key0"), "azure", "m1", "dep0", "key0", (), 1.0, 1.0)
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
T0_US = int(NOW.timestamp()) * 1_000_000

PARAMS = {"flaw": "order", "level": 1, "share": 0.5, "strict": True, "mixed": 1, "wide": 1}


def case(index, model="m1", **params):
    return Case(
        index,
        f"case{index}",
        f"s/phase53/test_x.py::test[{index}]",
        "phase53",
        model,
        0,
        {**PARAMS, **params},
        index * 11,
    )


def attempt(start_s, end_s, number=0, outcome="ok", **fields):
    return Attempt(
        turn=0,
        attempt=number,
        provider="azure",
        instance="dep0",
        key="key0",
        t_ready_s=start_s,
        t_lease_s=start_s,
        t_send_s=start_s,
        t_end_s=end_s,
        outcome=outcome,
        in_flight_at_send=3,
        **fields,
    )


def episode(index, start_s, end_s, ending="returned", worker="gw0", **fields):
    fields.setdefault("attempts", [attempt(start_s, end_s, tokens_in=10, tokens_out=2)])
    fields.setdefault(
        "messages", [TurnMessage(0, "user", "q"), TurnMessage(0, "assistant", "a", '[{"n":1}]')]
    )
    return EpisodeEnded(
        f"case{index}",
        worker,
        ending,
        T0_US + round(start_s * 1e6),
        T0_US + round(end_s * 1e6),
        end_s - start_s,
        n_turns=1,
        **fields,
    )


def grade(index, outcome="solved", at_s=50.0, **fields):
    fields.setdefault("test", "passed")
    return Grade(f"case{index}", "gw0", outcome, at_us=T0_US + round(at_s * 1e6), **fields)


def write_journal(run, worker, *records):
    writer = JournalWriter(run.journal, worker, lambda data: data)
    for record in records:
        writer.append(record)
    writer.close()


def make_run(path, cases, **fields):
    run = RunDirectory.create(path, NOW)
    write_cases(run.path, cases)
    values = {
        "run_id": run.run_id,
        "started_at": NOW,
        "pool_path": "pool.toml",
        "pool_digest": "0" * 64,
        "models": ("m1", "m2"),
        "simulated": True,
        "rate_mode": "fixed",
        "mode": "ultra",
        "policy": "even",
        "seed": 5,
        "repeats": 1,
        "n_planned": len(cases),
        "suite_digest": suite_digest(cases),
        "cases_digest": cases_digest(run.path),
        "pool_lanes": (LANE,),
        "summary_by": ("model", "flaw"),
        **fields,
    }
    write_manifest(run.path, Manifest(**values))
    run.close()
    return run


def rows_by_case(run):
    """The rows of a run's results, by the ids of their cases."""
    table = pq.read_table(run.path / "results.parquet")
    return {row["case_id"]: row for row in table.to_pylist()}


def without_digests(run_dir):
    """Remove the digests of the tables, which earlier versions did not write."""
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text())
    del summary["checksum"], summary["digests"]
    path.write_text(json.dumps(summary))


def run_of_seven(path, **fields):
    """Seven cases: solved, partial, infra and then solved, refused, error, skipped, never ran."""
    cases = [
        case(0),
        case(1, flaw="drop", mixed="x", share=1, wide=2**70),
        case(2, strict=None),
        case(3, model="m2"),
        case(4),
        case(5),
        case(6),
    ]
    run = make_run(path, cases, **fields)
    write_journal(
        run,
        "gw0",
        EpisodeStarted("case0", "gw0", T0_US),
        episode(0, 1.0, 3.0),
        grade(0, scores={"workflow": 0.75}),
        episode(
            1,
            1.0,
            5.0,
            backoff_s=0.5,
            attempts=[
                attempt(1.0, 1.5, outcome="rate", status=429, retry_after_s=0.5),
                attempt(2.0, 5.0, 1, status=200, rate_wait_s=0.25, t_first_byte_s=2.5),
            ],
        ),
        grade(1, "partial", scores={"workflow": 0.25, "extra": 1.0}),
        episode(2, 1.0, 2.0, "infra", kind="timeout"),
        grade(2, "infra", 10.0, kind="timeout", test="skipped"),
    )
    write_journal(
        run,
        "gw1",
        episode(2, 3.0, 4.0, "interrupted", "gw1"),
        episode(2, 5.0, 6.0, worker="gw1"),
        grade(2, "unsolved", 40.0),
        # A worker died after grading, so the same episode is graded again.
        grade(2, "solved", 45.0),
        episode(3, 2.0, 3.0, "refused", "gw1", kind="context_length"),
        grade(3, "unsolved", kind="context_length"),
        episode(4, 2.0, 3.0, "error", "gw1", kind="ValueError"),
        grade(4, "error", kind="ValueError", error="ValueError: no", test="error"),
        grade(5, "skipped", 20.0, test="skipped"),
    )
    return run


def run_of_one(path, ended, graded=None):
    """A run of one case with this episode and grade (default: solved)."""
    run = make_run(path, [case(0)])
    write_journal(run, "gw0", ended, graded or grade(0))
    return run


def run_of_repetitions(path):
    """Two models, three repetitions of four questions, streamed and priced; an adaptive limit."""
    cases = [
        msgspec.structs.replace(case(n, ("m1", "m2")[n % 2], flaw=f"f{n // 6}"), repeat=n // 2 % 3)
        for n in range(24)
    ]
    price = ModelPrice("azure", "m1", 1.0, 5.0)
    status = LaneStatus(
        LANE.lane_id, "up", "", 0, 3, 24, 24, 1, 0, {},
        pauses={"rate": 2, "breaker": 1}, paused_s={"rate": 1.5, "breaker": 90.0}, n_opened=1,
    )  # fmt: skip
    prices = (price, msgspec.structs.replace(price, model="m2", per_mtok_in=0.0))
    run = make_run(path, cases, prices=prices, lanes=(status,), summary_by=("model",))
    for n in range(24):
        sent = [
            attempt(n, n + 0.1, outcome="rate", status=429),
            attempt(
                n + 1, n + 2, 1, tokens_in=1000, tokens_out=n,
                t_first_token_s=None if n % 5 == 0 else n + 1.1 + n / 100,
            ),
        ]  # fmt: skip
        ended = episode(n, n, n + 2, attempts=sent, worker=f"gw{n}")
        how = "solved" if n % 7 in {0, 3, 5} else "infra" if n == 20 else "unsolved"
        write_journal(run, f"gw{n}", ended, grade(n, how, kind="timeout" if n == 20 else None))
    changes = [LimitChange("lab/key0", 3.0 + n, 4 + n, None, 2, "grew") for n in range(3)]
    place = (LANE.provider, LANE.instance, LANE.key)
    pauses = [
        LanePause(*place, "rate", 1.0, 1.5),
        LanePause(*place, "rate", 3.0, 4.0),
        LanePause(*place, "breaker", 9.0, 99.0),
    ]
    limits = HistoryFile(run.path / LIMITS_FILE, LimitRecord)
    limits.append(changes)
    limits.close()
    paused = HistoryFile(run.path / PAUSES_FILE, PauseRecord)
    paused.append(pauses)
    paused.close()
    return run
